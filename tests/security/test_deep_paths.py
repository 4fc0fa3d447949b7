"""Paths and layers of an image of containers. Levels of a path were looked at again for each file:
an archive of 133 KB took a processor of its host for two minutes, beside all limits of containers,
whenever a container began with it.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from tests.docker.test_reading import layout, read, saved, tar

DIRECTORY = "/".join(f"{'d' * 14}{level % 10}" for level in range(250))
FILES = {f"{DIRECTORY}/{number}": "" for number in range(2000)}


def processor_of(tmp_path: Path, image: bytes) -> float:
    """Seconds that it takes to read an image."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert len(read(tmp_path, image)) == len(FILES) + 1
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def test_what_a_layer_removes_costs_little_for_each_file_below(tmp_path: Path) -> None:
    lower, init = tar(FILES), {"sbin/init": "init"}
    plain = processor_of(tmp_path, layout(tar(FILES | init), nested=False))
    upper = tar({**init, "etc/.wh.removed": ""})
    assert processor_of(tmp_path, layout(lower, upper, nested=False)) < 3 * plain


def test_a_path_of_very_many_levels_is_refused(tmp_path: Path) -> None:
    image = tar({"sbin/init": "init", "a/" * 300 + "file": ""})
    with pytest.raises(ValueError, match="its path has more than 256 levels"):
        read(tmp_path, image)


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_an_image_of_very_many_layers_is_refused(tmp_path: Path, kind: str) -> None:
    """Each is read again, however often a manifest names it."""
    layers = [tar({"sbin/init": "init"})] * 300
    image = layout(*layers, nested=False) if kind == "oci" else saved(*layers)
    with pytest.raises(ValueError, match="it has more than 256 layers"):
        read(tmp_path, image)
