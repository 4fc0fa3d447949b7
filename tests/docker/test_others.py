"""What other users of an engine make of nospoon's images and roots: it has the labels of these."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docker.conftest import both_engines
from tests.docker.test_machines import asked

from nospoon.model.machine import PowerCommand
from nospoon.testing.racks import PLAN, Bench, make, rack_for, remove_all

pytestmark = pytest.mark.docker

NAMES = ("others-of-image", "others-of-root")


@both_engines
async def test_images_and_containers_made_of_those_of_a_cluster_outlive_it(
    bench: Bench, engine: Path
) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    pool = rack.pool.key.name
    image = f"localhost/{pool}/{rack.image.key.name}"
    asked(engine, "create", "--name", "source", "--ulimit", "nofile=1024", image)
    asked(engine, "commit", "source", "localhost/others/of-image")
    asked(engine, "rm", "source")
    asked(engine, "commit", f"{pool}.m0-0", "localhost/others/of-root")
    asked(engine, "tag", image, "localhost/others/tag")
    for name in NAMES:
        made = f"localhost/others/{name.removeprefix('others-')}"
        asked(engine, "create", "--name", name, "--ulimit", "nofile=1024", made)
    try:
        await remove_all(bench)
        shown = asked(engine, "ps", "-a", "--format={{.Names}}").split()
        assert sorted(shown) == sorted(NAMES)
        tags = asked(engine, "images", "--format={{.Repository}}").split()
        assert sorted(x for x in tags if x != "<none>") == [
            "localhost/others/of-image", "localhost/others/of-root", "localhost/others/tag",
        ]  # fmt: skip
    finally:
        for each in asked(engine, "ps", "-aq").split():
            asked(engine, "rm", "-f", each)
        asked(engine, "rmi", "-f", *asked(engine, "images", "-q").split())
