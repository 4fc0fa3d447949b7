"""The JSON Schema says what the loader does, as far as a schema can."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from nospoon.clusterfile.document import Document
from nospoon.clusterfile.load import load
from nospoon.clusterfile.schema import json_schema
from nospoon.errors import SpecError

ROOT = Path(__file__).parents[2]
VALID = {
    "the least": "cluster: a\nnodes: [{count: 2}]",
    "empty sections": "cluster: a\nhosts:\nnetworks: {lan: }\nflavors:\nboot:\nbmc:\nnodes: [{}]",
    "short forms": "cluster: a\nhosts: {s: simulated}\nnodes: [{disks: [1GiB], nics: provision}]",
    "an initrd": "cluster: a\nboot: {p: {kernel: http://k, initrd: http://i}}\nnodes: [{boot: p}]",
    "initrds": "cluster: a\nboot: {p: {kernel: k, initrd: [i, j]}}\nnodes: [{nics: [provision]}]",
}
INVALID = {
    "a negative count": "cluster: a\nnodes: [{count: -1}]",
    "no CPU": "cluster: a\nnodes: [{cpus: 0}]",
    "a VLAN past the last": "cluster: a\nnetworks: {n: {bridge: b, vlan: 4095}}\nnodes: [{}]",
    "an unknown key": "cluster: a\nnodes: [{cpu: 1}]",
    "an unfit name": "cluster: a\nnetworks: {N: {}}\nnodes: [{nics: [N]}]",
    "no nodes": "cluster: a",
    "a size without a unit": "cluster: a\nnodes: [{memory: 1024}]",
}


def agrees(text: str) -> bool:
    validator = jsonschema.Draft202012Validator(json_schema())
    return bool(validator.is_valid(Document(text, "x").value))


@pytest.mark.parametrize("text", VALID.values(), ids=list(VALID))
def test_what_the_loader_takes_the_schema_takes(text: str) -> None:
    load(text, file="x")
    assert agrees(text)


@pytest.mark.parametrize("text", INVALID.values(), ids=list(INVALID))
def test_what_the_schema_refuses_the_loader_refuses(text: str) -> None:
    with pytest.raises(SpecError):
        load(text, file="x")
    assert not agrees(text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    assert agrees(path.read_text())
    assert yaml.safe_load(path.read_text())


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
