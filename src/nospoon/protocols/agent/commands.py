"""Commands of an agent, by name: what they need, what they answer, and what they do to the machine.

As ironic-python-agent's extensions clean, deploy, image, log, rescue, service, standby and system.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid5

Json = dict[str, object]
LONGEST_IMAGE, LONGEST_WHY = 8000, 500
"""Characters of an image's URL, and of why a command failed, that are remembered."""
MANAGER = "GenericHardwareManager"
VERSION: Json = {"generic_hardware_manager": "1.2"}


class Ending(StrEnum):
    """How a command ends its agent."""

    POWER_OFF = "power off"
    REBOOT = "reboot"
    LOCK = "lock"


@dataclass(slots=True)
class Node:
    """What commands know and change of the machine: `image` is on its disk, "" nothing.

    `partitions` None: no image was written yet.
    """

    uuid: UUID
    image: str = ""
    partitions: Json | None = None
    log: str = ""


class Refused(Exception):
    """A command that fails: `kind` as the agent's error classes, and why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why[:LONGEST_WHY])
        self.kind, self.why = kind, why[:LONGEST_WHY]


@dataclass(frozen=True, slots=True)
class Command:
    """`run` gives its result, or raises `Refused`. `slow`: it takes its time, and a caller that
    does not wait learns its result later. `needs`: parameters without which it is refused.
    """

    run: Callable[[Node, Json], Json | None]
    slow: bool = False
    needs: tuple[str, ...] = ()
    ending: Ending | None = None


def _nothing(node: Node, arguments: Json) -> str:
    del node, arguments
    return ""


@dataclass(frozen=True, slots=True)
class Step:
    """A clean, deploy or service step; priority 0 runs only when asked for."""

    priority: int
    interface: str = "deploy"
    run: Callable[[Node, Json], str] = _nothing
    abortable: bool = False
    arguments: tuple[str, ...] = ()


def _erase(node: Node, arguments: Json) -> str:
    del arguments
    node.image, node.partitions = "", None
    return "erased"


def _write(node: Node, arguments: Json) -> str:
    image = arguments.get("image_info")
    if not isinstance(image, dict) or not image.get("id"):
        raise Refused("InvalidCommandParamsError", "write_image needs image_info with an id")
    urls = image.get("urls")
    first = urls[0] if isinstance(urls, list) and urls else image["id"]
    node.image = str(first)[:LONGEST_IMAGE]
    node.partitions = _partitions(node) if image.get("image_type") == "partition" else {}
    return f"image ({image['id']}) written to device /dev/vda"


def _partitions(node: Node) -> Json:
    return {
        "root uuid": str(uuid5(node.uuid, "root")),
        "efi system partition uuid": str(uuid5(node.uuid, "efi")),
        "partitions": {"root": "/dev/vda2", "efi system partition": "/dev/vda1"},
    }


CLEAN: Mapping[str, Step] = {
    "erase_devices": Step(10, run=_erase, abortable=True),
    "erase_devices_metadata": Step(99, run=_erase, abortable=True),
    "erase_devices_express": Step(0, run=_erase, abortable=True),
    "erase_pstore": Step(0),
    "delete_configuration": Step(0, "raid"),
    "create_configuration": Step(0, "raid"),
    "burnin_cpu": Step(0),
    "burnin_disk": Step(0),
    "burnin_memory": Step(0),
    "burnin_network": Step(0),
}
DEPLOY: Mapping[str, Step] = {
    "erase_devices_metadata": Step(0, run=_erase),
    "apply_configuration": Step(0, "raid", arguments=("raid_config",)),
    "write_image": Step(0, run=_write, arguments=("image_info", "configdrive")),
    "inject_files": Step(0, arguments=("files",)),
}
SERVICE: Mapping[str, Step] = {
    "burnin_cpu": Step(0),
    "burnin_memory": Step(0),
    "burnin_network": Step(0),
}
STEPS: Mapping[str, Mapping[str, Step]] = {"clean": CLEAN, "deploy": DEPLOY, "service": SERVICE}


def _listed(kind: str) -> Callable[[Node, Json], Json]:
    def run(node: Node, params: Json) -> Json:
        del node, params
        steps = [_described(name, step) for name, step in STEPS[kind].items()]
        return {f"{kind}_steps": {MANAGER: steps}, "hardware_manager_version": VERSION}

    return run


def _described(name: str, step: Step) -> Json:
    return {
        "step": name,
        "priority": step.priority,
        "interface": step.interface,
        "reboot_requested": False,
        "abortable": step.abortable,
        "argsinfo": {each: {"description": each, "required": False} for each in step.arguments},
    }


def step_of(params: Json) -> str:
    """The name of the step that a command is about, "" for none."""
    step = params.get("step")
    return str(step.get("step", "")) if isinstance(step, dict) else ""


def _executed(kind: str) -> Callable[[Node, Json], Json]:
    def run(node: Node, params: Json) -> Json:
        name = step_of(params)
        step = STEPS[kind].get(name)
        if step is None:
            raise Refused(
                f"{kind.capitalize()}Error", f"no hardware manager knows the {kind} step {name!r}"
            )
        given = params["step"]
        assert isinstance(given, dict), "it has a name"
        arguments = given.get("args") or {}
        if not isinstance(arguments, dict):
            raise Refused("InvalidCommandParamsError", f"the {kind} step's args are no object")
        result = step.run(node, {**arguments, **params})
        return {f"{kind}_result": result, f"{kind}_step": given}

    return run


def _prepared(node: Node, params: Json) -> Json:
    return {"result": f"prepare_image: {_write(node, params)}"}


def _cached(node: Node, params: Json) -> Json:
    return {"result": f"cache_image: {_write(node, params)}"}


def _uuids(node: Node, params: Json) -> Json:
    del params
    return node.partitions or {}


def _bootable(node: Node, params: Json) -> Json | None:
    del params
    if not node.image:
        raise Refused("CommandExecutionError", "there is no image to install a boot loader in")
    return None


def _logs(node: Node, params: Json) -> Json:
    """A gzipped archive in base64, with all that was said in it."""
    del params
    data, held = node.log.encode(), io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        member = tarfile.TarInfo("journal")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    packed = gzip.compress(held.getvalue(), mtime=0)
    return {"system_logs": base64.b64encode(packed).decode()}


def _done(node: Node, params: Json) -> None:
    del node, params


COMMANDS: Mapping[str, Command] = {
    "clean.get_clean_steps": Command(_listed("clean")),
    "clean.execute_clean_step": Command(_executed("clean"), slow=True, needs=("step",)),
    "deploy.get_deploy_steps": Command(_listed("deploy")),
    "deploy.execute_deploy_step": Command(_executed("deploy"), slow=True, needs=("step",)),
    "service.get_service_steps": Command(_listed("service")),
    "service.execute_service_step": Command(_executed("service"), slow=True, needs=("step",)),
    "standby.cache_image": Command(_cached, slow=True, needs=("image_info",)),
    "standby.prepare_image": Command(_prepared, slow=True, needs=("image_info",)),
    "standby.get_partition_uuids": Command(_uuids),
    "standby.sync": Command(_done),
    "standby.power_off": Command(_done, slow=True, ending=Ending.POWER_OFF),
    "standby.run_image": Command(_done, slow=True, ending=Ending.REBOOT),
    "standby.reboot": Command(_done, slow=True, ending=Ending.REBOOT),
    "image.install_bootloader": Command(_bootable, slow=True),
    "log.collect_system_logs": Command(_logs),
    "rescue.finalize_rescue": Command(_done, needs=("rescue_password",), ending=Ending.LOCK),
    "system.lockdown": Command(_done, ending=Ending.LOCK),
}
"""By name, with its extension."""
_STEPS = frozenset(name for steps in STEPS.values() for name in steps)
NAMES = _STEPS | {name.partition(".")[2] for name in COMMANDS}
"""What commands and steps are called in settings."""
TIMED = _STEPS | {name.partition(".")[2] for name, each in COMMANDS.items() if each.slow}
"""Those that take their time."""
