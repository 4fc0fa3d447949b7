"""nospoon sushy: sushy-emulator's command line, for scripts and services that start it.

It stays in the foreground, as that does: the machines of its host have their Redfish service until
it is ended, and are given back then. What others create or remove meanwhile is taken up.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.addresses import resolved
from nospoon.cli.adoptions import refused
from nospoon.cli.cliff import Command
from nospoon.cli.commands.import_ import text_beside
from nospoon.cli.echo import echo
from nospoon.cli.files import read_request, whole
from nospoon.cli.follow import finish, follow
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.cli.output import report
from nospoon.errors import Conflict, NospoonError, OperationFailed, PlanRefused, UsageError
from nospoon.model.rest.clusters import ClusterSummary
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.plans import BegunPlan
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.importers import Imported

SECONDS = 5.0
"""Between two looks at the machines that there are."""
PATIENCE = 60.0
"""For the end of what is being done when it is to end."""
DOWN = {"purge": False, "force": False, "enrolment": "remove"}
PREFIX = "SUSHY_EMULATOR_"
FEATURES = ("full", "vmedia", "minimum")
"""The same as of its configuration (importers.sushy, which imports pydantic)."""


@click.command("sushy", cls=Command)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="SUSHY_EMULATOR_CONFIG",
    help="sushy-emulator's configuration.",
)
@click.option("-i", "--interface", help="Address to listen on; default: 127.0.0.1.")
@click.option("-p", "--port", type=click.IntRange(1, 65535), help="TCP port; default 8000.")
@click.option("--ssl-certificate", help="Certificate for HTTPS, in PEM.")
@click.option("--ssl-key", help="Its key, in PEM.")
@click.option("--os-cloud", help="Cloud of clouds.yaml, whose servers are served.")
@click.option("--ironic-cloud", help="Refused: nodes of an Ironic are not adopted.")
@click.option("--fake", is_flag=True, help="Refused: the cluster file has simulated machines.")
@click.option(
    "--libvirt-uri",
    envvar=["SUSHY_EMULATOR_LIBVIRT_URI", "SUSHY_EMULATOR_LIBVIRT_URL"],
    help="Default: qemu:///system.",
)
@click.option("--feature-set", type=click.Choice(FEATURES), help="Ignored: all features are on.")
@click.option("--debug", is_flag=True, hidden=True)
def command(
    config: str | None,
    interface: str | None,
    port: int | None,
    ssl_certificate: str | None,
    ssl_key: str | None,
    os_cloud: str | None,
    ironic_cloud: str | None,
    fake: bool,  # noqa: FBT001  (click passes options by name)
    libvirt_uri: str | None,
    feature_set: str | None,
    debug: bool,  # noqa: FBT001  (click passes options by name)
) -> None:
    """Run in the foreground as sushy-emulator does, with its options and configuration.

    Without an htpasswd file Redfish answers without a login.
    """
    del debug
    given = {
        "LISTEN_IP": interface, "LISTEN_PORT": port, "SSL_CERT": ssl_certificate,
        "SSL_KEY": ssl_key, "OS_CLOUD": os_cloud, "IRONIC_CLOUD": ironic_cloud,
        "FAKE_DRIVER": fake or None, "LIBVIRT_URI": libvirt_uri, "FEATURE_SET": feature_set,
    }  # fmt: skip
    text = _text(config) if config is not None else f"{PREFIX}LISTEN_PORT = 8000\n"
    text += "".join(
        f"\n{PREFIX}{name} = {value!r}" for name, value in given.items() if value is not None
    )
    emulator = _emulator(config or "sushy-emulator", text)
    for each in emulator.left_out:
        echo(f"Not carried over: {each}", err=True)
    echo(
        "In nospoon's own words: `nospoon import --from sushy-tools CONF -o FILE` and "
        "`nospoon up FILE`",
        err=True,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    client = connect.client()
    try:
        with TemporaryDirectory() as place:
            _serve(client, emulator, Path(place) / f"{emulator.name}.yaml")
    except (KeyboardInterrupt, click.exceptions.Exit) as ended:
        if isinstance(ended, click.exceptions.Exit) and ended.exit_code != INTERRUPTED:
            raise  # `follow` exits so where it is interrupted
        echo("Ending: the machines are given back.", err=True)
    finally:
        _end(client, emulator.name)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """A service manager's end is a person's."""
    del number, frame
    raise KeyboardInterrupt


def _text(config: str) -> str:
    try:
        return Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {config}: {reason(error)}") from error


@dataclass(frozen=True, slots=True)
class Emulator:
    """One sushy-emulator, and its cluster: one for each port, as there is an emulator for each.
    `allowed`: the machines that its configuration names; none where every machine is meant.
    """

    file: str
    text: str
    name: str
    allowed: tuple[str, ...]
    left_out: tuple[str, ...]

    def cluster(self, besides: Collection[str] = ()) -> str:
        """The text of the cluster file, without some of the machines that are named."""
        text = self.text
        if besides:
            allowed = [each for each in self.allowed if each not in besides]
            text += f"\n{PREFIX}ALLOWED_INSTANCES = {allowed!r}"
        return _read(self.file, text, self.name).text


def _read(file: str, text: str, name: str) -> Imported:
    """Paths begin where the command was started, as the emulator's do."""
    from nospoon.importers import READERS, Source  # noqa: PLC0415  (imports pydantic)

    beside = text_beside(str(Path.cwd() / "started"))
    source = Source(file, text, name, read=beside, resolve=resolved, in_its_place=True)
    return READERS["sushy-tools"](source)


def _emulator(file: str, text: str) -> Emulator:
    from nospoon.clusterfile.load import load  # noqa: PLC0415  (imports pydantic)

    made = _read(file, text, "sushy")
    cluster = load(whole(made.text, file, Path.cwd()), file=file)
    bmc = cluster.addressing
    if bmc.certificate is not None:
        certificate, key = bmc.certificate.certificate, bmc.certificate.key
        text += f"\n{PREFIX}SSL_CERT = {str(Path(certificate).absolute())!r}"
        text += f"\n{PREFIX}SSL_KEY = {str(Path(key).absolute())!r}"
    allowed = tuple(each.machine for each in cluster.adoptions if each.machine)
    return Emulator(file, text, f"sushy-{bmc.redfish_port}", allowed, made.left_out)


def _serve(client: Client, emulator: Emulator, file: Path) -> NoReturn:
    """Bring the machines that there are to their BMCs, again and again.

    What is wrong at first ends it, unless it is that there is no machine yet; what is wrong later
    is said once, for what is served goes on.
    """
    served, said = False, ""
    while True:
        try:
            without = _bring(client, emulator, file, quiet=served)
        except NospoonError as error:
            if not served and not _is_too_early(error):
                raise
            if str(error) != said:
                report(error)
            said = str(error)
        else:
            if without and without != said:
                echo(without, err=True)
            served, said = True, without
        time.sleep(SECONDS)


def _bring(client: Client, emulator: Emulator, file: Path, *, quiet: bool) -> str:
    """Serve what can be served of the machines that are named; why others are not, "" if all are.
    Raises `NospoonError` unless that is done.
    """
    missing: dict[str, str] = {}
    while True:
        file.write_text(emulator.cluster(missing), encoding="utf-8")
        try:
            answer = client.ask(BegunPlan, "POST", "/v1/clusters", read_request(client, str(file)))
            break
        except PlanRefused as error:
            missing |= refused(error, emulator.allowed)
            if len(missing) == len(emulator.allowed):
                raise PlanRefused([f"nodes: {each}" for each in missing.values()]) from error
    if not quiet:
        echo(answer.text, err=True)
    if answer.operation is not None:
        final = follow(client, answer.operation.id)
        if final.state != "done":
            failures = (each.message for each in final.result.failures)
            raise OperationFailed("; ".join([final.message or final.state, *failures]))
    return "\n".join(f"Not served: {each}" for each in missing.values())


def _is_too_early(error: NospoonError) -> bool:
    return isinstance(error, PlanRefused) and all(
        "no such machine" in each for each in error.reasons
    )


def _end(client: Client, name: str) -> None:
    """Give the machines back, once an operation under way has ended."""
    end = time.monotonic() + PATIENCE
    while name in {each.name for each in client.ask(list[ClusterSummary], "GET", "/v1/clusters")}:
        try:
            path = f"/v1/clusters/{name}/down"
            operation = client.ask(OperationDetails, "POST", path, DOWN)
        except Conflict:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
            continue
        finish(follow(client, operation.id))
        return
