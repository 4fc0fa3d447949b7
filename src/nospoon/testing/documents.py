"""Code blocks of Markdown pages: found, classified, and run as their reader would run them.

A block is fenced by three backticks (CommonMark §4.5). Its info string says what it is: `console`
has commands behind `$ `, or `# ` of root, and what they print, `sh` only commands, `yaml` a cluster
file. An HTML comment on the line before the fence, `<!-- test: MARK -->`, says more:

    not run: REASON     a reason of `REASONS`; its `nospoon` commands are still parsed
    fragment            a part of a cluster file: loaded with a cluster name and a node
    other               no cluster file at all, and no commands

A cluster file whose first line is `# NAME.yaml` is saved under that name for the commands below it.
"""

from __future__ import annotations

import os
import re
import select
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from nospoon.cli.main import cli
from nospoon.runtime.clock import monotonic
from nospoon.testing.terminal import Terminal

REASONS: Mapping[str, str] = {
    "installs software": "it would change the machine of the tests; `make demo` is run by CI",
    "another host": "it needs a second machine; tests/fleet has the same with containers",
    "Ironic": "it needs a running Ironic; tests/ironic runs the same",
    "OpenStack": "it takes a minute and root; tests/cloud runs the same",
    "foreign tools": "its tools are not in Debian or not ours to install",
    "sudo": "it needs an ordinary user who may use sudo",
    "outside": "it needs a server on the internet or an address of the reader's",
    "the tests": "it is the test suite, or makes what the test suite compares",
    "containers": "it needs liblxc or Podman; tests/e2e/test_containers.py and others run the same",
    "systemd": "it needs systemd as init; tests/runtime/test_systemd.py checks the units",
    "for ever": "it does not end by itself; other tests read the same stream",
}
"""Why a block is not run. Closed: another reason is a failure."""
KINDS = frozenset({"console", "sh", "yaml"})
COMMANDS = frozenset({"console", "sh"})
PROMPTS = ("$ ", "# ")
_FENCE = re.compile(r"^```(\w*)\s*$")
_MARK = re.compile(r"^<!-- test: (.+) -->$")
_INLINE = re.compile(r"`(nospoon [^`]+)`")
_NAMED = re.compile(r"\A# (\S+\.yaml)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """`line`: of its fence, from 1. `mark` "" without one."""

    page: str
    line: int
    kind: str
    mark: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The name under which a cluster file is saved, "" for none."""
        named = _NAMED.match(self.text)
        return named.group(1) if named else ""

    def commands(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each command, and the lines that are shown below it."""
        if self.kind == "sh":
            yield self.text, ()
            return
        command, shown = "", list[str]()
        for line in self.text.splitlines():
            if line.startswith(PROMPTS):
                if command:
                    yield command, tuple(shown)
                command, shown = line[2:], []
            elif _is_open(command):
                command += f"\n{line}"
            else:
                shown.append(line)
        if command:
            yield command, tuple(shown)


def _is_open(command: str) -> bool:
    """Whether a shell would read another line for it."""
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def blocks(root: Path, page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if not fence:
            continue
        if opened is None:
            mark = _MARK.match(lines[number - 1]) if number else None
            opened = (number, fence.group(1), mark.group(1) if mark else "")
            continue
        start, kind, said = opened
        text = "".join(f"{each}\n" for each in lines[start + 1 : number])
        yield Block(str(page.relative_to(root)), start + 1, kind, said, text)
        opened = None


def inline(page: Path) -> Iterator[str]:
    """Commands of nospoon in the running text."""
    fenced = False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield from (found.group(1) for found in _INLINE.finditer(line))


def nospoon_commands(shell: str) -> Iterator[list[str]]:
    """The arguments of every `nospoon` in some lines of a shell. Raises ValueError."""
    text = shell.replace("\\\n", " ").replace("<(", "; ").replace("$(", "; ")
    text = re.sub(r"(?m)\s#.*$", "", text)  # a lexer would take the end of the line as well
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t", True
    found: list[str] | None = None
    begins = True
    for word in [*lexer, ";"]:
        ends = re.fullmatch(r"[();<>|&\n]+", word) is not None
        if found is not None and ends:
            yield found
            found = None
        elif found is not None:
            found.append(word)
        elif word == "nospoon" and begins:
            found = []
        begins = ends or word == "sudo"


def problem(argv: list[str]) -> str:
    """Why the command line does not take these arguments; "" when it does. Nothing is run, and
    values are not looked at, except where only some are possible.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="nospoon", **cli.context_settings)
    rest = list(argv)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        inner = command.get_command(context, name)
        if inner is None:
            return f"no command {name!r}"
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    try:
        values, left, _ = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        return error.format_message()
    if left and not isinstance(command, click.Group):
        return f"too many arguments: {' '.join(left)}"
    for parameter in command.params:
        given = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(given, str):
            wanted = [str(each) for each in parameter.type.choices]
            if given not in wanted and not given.isupper():
                return f"{given!r} is not one of {', '.join(wanted)}"
        required = isinstance(parameter, click.Argument) and parameter.required
        if (
            required
            and not isinstance(given, (str, tuple))
            and not {"-h", "--help"}.intersection(rest)
        ):
            return f"{parameter.human_readable_name} is missing"
    return ""


ENDS = re.compile(rb"\x1e(\d+)\x1e")
_ANSWERS = ((b"[y/N]: ", b"y\n"), (b"Ctrl-] leaves.", b"\x1d"))
"""What a reader types when a command shows this."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Session:
    """A shell in a directory, on a terminal."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        plain = {"TERM": "dumb", "COLUMNS": "250", "NO_COLOR": "1", "PS1": "", "HISTFILE": ""}
        argv = ["bash", "--norc", "--noprofile", "--noediting"]
        self._terminal = Terminal(argv, env={**environment, **plain})
        self._directory = directory
        self._type("stty -echo -onlcr; PS1= PS2= PROMPT_COMMAND=; shopt -s expand_aliases")
        self._type(f"cd {shlex.quote(str(directory))}")
        self.run("true")

    def run(self, command: str, *, seconds: float = 400) -> tuple[int, str]:
        """Its exit status, and what it showed; questions are answered with yes."""
        script = self._directory / ".command"
        script.write_text(f"{command}\n")
        self._type(". ./.command; printf '\\036%d\\036' $?")
        heard, answered = b"", 0
        end = monotonic() + seconds
        while (done := ENDS.search(heard)) is None:
            ready, _, _ = select.select([self._terminal.master], [], [], max(0, end - monotonic()))
            assert ready, f"{command}: not done in {seconds} s; it showed {heard.decode()}"
            heard += os.read(self._terminal.master, 1 << 16)
            for question, answer in _ANSWERS:
                if question in heard[answered:]:
                    answered = len(heard)
                    self._terminal.types(answer)
        return int(done.group(1)), _CONTROL.sub("", heard[: done.start()].decode(errors="replace"))

    def _type(self, line: str) -> None:
        self._terminal.types(f"{line}\n".encode())

    def close(self) -> None:
        self._terminal.close()


_VARIABLE = re.compile(
    r"(?P<any>…|\.\.\.)|(?P<address>127\.0\.0\.1:\d+)|(?P<network>172\.30\.\d+\.1\b)"
    r"|(?P<uuid>[0-9a-f]{8}-[0-9a-f-]{27})"
    r"|(?P<password>\b(?=\w*[0-9])(?=\w*[A-Z])(?=\w*[a-z])\w{16}\b)|(?P<seconds>\b\d+\.\d\b)"
    r"|(?P<count>^\d+(?= to create))|(?P<space>\s+)"
)
"""What differs between two runs of a command."""


def missing(shown: tuple[str, ...], output: str, known: dict[str, str]) -> str:
    """The first line that is shown and was not printed, in this order; "" for none. `known`: gets
    the addresses and passwords of this run by those that are shown.
    """
    printed = iter(line.strip() for line in output.splitlines())
    for line in (each.strip() for each in shown):
        if line in {"", "…", "..."}:
            continue
        pattern = _pattern(line)
        for each in printed:
            if found := pattern.fullmatch(each):
                names = [m for m in _VARIABLE.finditer(line) if m.lastgroup not in {"any", "space"}]
                known.update(zip((m.group() for m in names), found.groups(), strict=True))
                break
        else:
            return line
    return ""


def _pattern(line: str) -> re.Pattern[str]:
    parts, end = [], 0
    for found in _VARIABLE.finditer(line):
        parts.append(re.escape(line[end : found.start()]))
        parts.append({"any": ".*", "space": r"\s*"}.get(found.lastgroup or "", r"(\S+)"))
        end = found.end()
    return re.compile("".join([*parts, re.escape(line[end:])]))


def of_this_run(command: str, known: Mapping[str, str]) -> str:
    """The command with the addresses, ports and passwords that were printed in this run."""
    if not known:
        return command
    values = dict(known)
    for shown, printed in known.items():
        if shown.startswith("127.") and printed.startswith("127."):
            values[f"-p {shown.rpartition(':')[2]}"] = f"-p {printed.rpartition(':')[2]}"
    # In one pass: a value of this run may contain what another run printed (port 14501, count 14).
    words = sorted(map(re.escape, values), key=len, reverse=True)
    return re.sub(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", lambda m: values[m.group()], command)
