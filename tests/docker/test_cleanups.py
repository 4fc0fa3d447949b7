"""Podman's own cleaning up after a container, which comes late on a busy host: what has been
prepared by then for the next run is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.docker.conftest import mounts_below, processes_with, service_of
from tests.lxc.test_machines import eventually

from nospoon.model.connections import Docker
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.providers.docker import DockerConnection
from nospoon.providers.docker.program import roots
from nospoon.providers.docker.program.engines import Limits
from nospoon.providers.docker.program.podman import Podman
from nospoon.providers.docker.program.processes import began
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.racks import MEBI, PLAN, Bench, make, rack_for, remove_all

pytestmark = pytest.mark.docker

CONMON = """\
#!/bin/sh
for each; do
  shift
  [ "$before" != --exit-command ] || each={directory}/late
  set -- "$@" "$each"
  before=$each
done
exec conmon "$@"
"""
"""Has its Podman cleaned up by another program."""
LATE = """\
#!/bin/sh
for each; do container=$each; done
for turn in $(seq 20); do
  case $(podman --remote --url unix://$(cat {directory}/socket) inspect \\
      --format '{{{{.State.Status}}}}' $container) in
    initialized) break ;;
  esac
  sleep 0.1
done
exec podman "$@"
"""
"""Podman, when the next run is prepared, or after two seconds."""


async def test_what_is_prepared_is_not_what_podman_cleans_up_after(
    bench: Bench, connection: DockerConnection, place: Path
) -> None:
    for name, text in (("conmon", CONMON), ("late", LATE)):
        (place / name).write_text(text.format(directory=place))
        (place / name).chmod(0o755)
    with service_of("--conmon", str(place / "conmon")) as socket:
        (place / "socket").write_text(str(socket))
        host = replace(connection.host, connection=Docker(str(socket)))
        late = DockerConnection(
            host, "kit", LocalRunner(), connection.drivers[Kind.IMAGE]._open,  # type: ignore[attr-defined]
            root=bench.pool_root, records=str(place / "records"),
        )  # fmt: skip
        slow = replace(bench, connection=late)
        rack, engine = rack_for(slow), Podman(str(socket))
        name = f"{rack.pool.key.name}.m0-0"
        await make(slow, *rack.all)
        await late.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        before = conmon_of(engine, name)
        await late.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
        (volume,) = Path(bench.pool_root).glob("*/m0-0.volume")
        roots.mount_root(engine, name, volume)
        pid = await asyncio.to_thread(engine.prepare, name, Limits(1, 64 * MEBI, 64))
        await eventually(lambda: before not in processes_with(socket.parent))
        assert began(pid), "what is prepared goes on"
        await remove_all(slow)
        await late.close()
    assert mounts_below(place) == []


def conmon_of(engine: Podman, name: str) -> int:
    found = cast("dict[str, str]", engine.container(name))
    return int(Path(found["ConmonPidFile"]).read_text())
