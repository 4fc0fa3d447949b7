"""The command `nospoon`: finds commands lazily, so that --help answers at once."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from keyword import iskeyword
from typing import NoReturn

import click

from nospoon import __version__
from nospoon.cli.echo import echo
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.cli.output import report
from nospoon.errors import (
    Conflict,
    NospoonError,
    SpecError,
    UsageError,
)

COMMANDS = {
    "up": "Bring a cluster to what its file says.",
    "plan": "Show what `up` would do, and why.",
    "apply": "Carry out a plan that was saved with `plan -o`.",
    "down": "Remove everything of a cluster.",
    "status": "Show desired and observed state, and drift, node by node.",
    "verify": "Boot a probe on every node and compare its hardware with the file.",
    "node": "Nodes: list, show, power, boot, media, console, ssh, fault.",
    "bmc": "BMCs: where they answer, and who may log in.",
    "host": "Hosts: check what they have of what is needed there, and prepare them.",
    "orphans": "List what nospoon made and no cluster knows any more; remove it.",
    "recover": "Rebuild a lost store from what is on the hosts.",
    "service": "Services of VMs and containers: list, logs, upgrade, rollback.",
    "image": "Images: build, load into nospoon or Glance, list, show, remove.",
    "snapshot": "Snapshots of a whole cluster: create, list, restore, delete.",
    "operation": "Long work: list, show, watch, cancel.",
    "lab": "Labs: which machines lab schedulers may have; drain, repair, reserve.",
    "request": "Requests of lab schedulers (Beaker): check, submit, list, watch, extend, end.",
    "distro": "Print what a lab needs to install machines from a distribution's tree.",
    "export": "Write a cluster as what another tool reads: Ironic, Metal3, Ansible, ssh ...",
    "import": "Make a cluster file of what Tenks, TripleO or virtualbmc was given.",
    "vbmc": "The commands of virtualbmc, over its own configuration (~/.vbmc).",
    "sushy": "Run in the foreground as sushy-emulator does, with its configuration.",
    "schema": "Print the JSON Schema of cluster files.",
    "doctor": "Say what is missing on this machine, and how to fix it.",
    "support-bundle": "Pack what a bug report needs; secrets are masked.",
    "dev": "Services for development: a standalone Ironic, a whole OpenStack.",
    "daemon": "Start, stop and look at the daemon.",
}

ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "ps", "info", "get", "cluster", "clusters"), "status"),
    **dict.fromkeys(("delete", "destroy", "remove", "rm", "undeploy"), "down"),
    **dict.fromkeys(("create", "deploy", "add", "run"), "up"),
    **dict.fromkeys(("validate", "diff", "preview"), "plan"),
    **dict.fromkeys(
        ("console", "power", "boot", "media", "fault", "ssh", "exec", "show"), "node {}"
    ),
    **dict.fromkeys(("start", "stop"), "daemon {}"),
    **dict.fromkeys(("version", "help"), "--{}"),
    **dict.fromkeys(("restart", "reboot", "cycle"), "node power NODE cycle"),
    "logs": "node console NODE --log",
}
"""What other tools, or people in a hurry, call a command -> what it is here."""

EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (SpecError, 2),
    (UsageError, 2),
    (Conflict, 5),
    (TimeoutError, 4),
    (NospoonError, 1),
)
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What write(2) says of a file that takes no more."""


class LazyGroup(click.Group):
    """Knows its commands' names and one-line helps; imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_") + ("_" if iskeyword(cmd_name) else "")
        module = importlib.import_module(f"nospoon.cli.commands.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = _nearest(args[0])
            if not near:
                raise
            message = f"{error.message.rstrip('.')}. Did you mean {near!r}?"
            raise click.UsageError(message, ctx) from error


def _nearest(name: str) -> str:
    import difflib  # noqa: PLC0415  (only for a mistyped name)

    if name in ELSEWHERE:
        return ELSEWHERE[name].format(name)
    return next(iter(difflib.get_close_matches(name, COMMANDS, n=1)), "")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nospoon")
def cli() -> None:
    """Virtual bare metal: servers with BMCs, boot order and consoles, from one file."""


def main() -> NoReturn:
    """Run the command line; every error becomes a message and an exit code."""
    if sys.stdout is None:  # closed by the shell (`>&-`): nothing else may get descriptor 1
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        status = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader of its output has gone, as `head` does: the flush at exit must not fail again
        # (Python's documentation of SIGPIPE in the module signal)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with contextlib.suppress(OSError):  # stderr may be on the same disk
            echo(f"Error: cannot write the output: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        status = 1
    sys.exit(status)


def _show(show: Callable[[], None]) -> None:
    """Show an error. One whose text cannot be written, to a full disk or to a reader that has gone,
    keeps its exit code.
    """
    try:
        show()
    except OSError:  # else the flush at exit fails again, which Python ends with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _run() -> int:
    """SIGPIPE stays ignored: a daemon that closes its socket is an error to be shown."""
    try:
        status = cli.main(standalone_mode=False)
    except click.exceptions.Abort as error:
        _show(partial(echo, "Aborted.", err=True))
        # click makes this of Ctrl-C, and of "no" to a question
        return INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else 1
    except click.ClickException as error:
        _show(error.show)
        return error.exit_code
    except NospoonError as error:
        _show(partial(report, error))
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def exit_code(error: BaseException) -> int:
    """0 ok, 1 failed, 2 usage, 3 partly done, 4 timed out, 5 conflict."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


if __name__ == "__main__":
    main()
