"""The RELAX NG of requests takes what their reader takes and nothing else, as libxml2 judges."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import pytest

from nospoon.clusterfile.request_schema import relax_ng
from nospoon.clusterfile.requests import read_request
from nospoon.errors import SpecError
from nospoon.lab.grammar import ROWS, Row
from nospoon.lab.recipe import CHILDREN
from nospoon.testing.rack import Rack

ROOT = Path(__file__).parents[2]
DOCUMENTS = 1500
OPS = ("=", "==", "!=", "<", "<=", ">", ">=", "like", "LIKE", "")
VALUES = ("1", "2048", "", "x86_64", "-1", "1" * 18, "1" * 19, " 7", "1.5", "%", "é")
UNITS = ("MiB", "GB", "bytes", "mib", "")


def taken_by_the_schema(tmp_path: Path, documents: Sequence[str]) -> list[bool]:
    schema = tmp_path / "request.rng"
    schema.write_text(relax_ng())
    files = [tmp_path / f"{number}.xml" for number in range(len(documents))]
    for file, text in zip(files, documents, strict=True):
        file.write_text(text)
    command = ["xmllint", "--noout", "--relaxng", str(schema), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = set(done.stderr.splitlines())
    valid = [f"{file} validates" in said for file in files]
    assert all(
        taken or f"{file} fails to validate" in said
        for file, taken in zip(files, valid, strict=True)
    ), done.stderr[-2000:]
    return valid


def taken_by_the_reader(text: str) -> bool:
    try:
        read_request(text.encode(), file="f")
    except SpecError:
        return False
    return True


class Writer:
    """Requests that are mostly right, each of which may be wrong in any place."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def document(self) -> str:
        root = self.random.choice(["job", "recipeSet", "recipe", "hostRequires"])
        return ET.tostring(self._of(root), encoding="unicode")

    def _of(self, name: str) -> ET.Element:
        match name:
            case "job":
                return self._with(name, self._several("recipeSet"), self._odd())
            case "recipeSet":
                given = {"priority": self.random.choice(["High", "low", "URGENT", "soon"])}
                return self._with(name, self._several("recipe"), attributes=given)
            case "recipe":
                return self._recipe()
            case _:
                inner = self._filter("host", 0)
                given = self._maybe(force=self.random.choice(["", "f"]))
                return self._with(name, inner, attributes={**given, **self._unknown()})

    def _several(self, name: str) -> list[ET.Element]:
        return [self._of(name) for _ in range(self._pick(0, 1, 1, 1, 2))]

    def _recipe(self) -> ET.Element:
        children = [self._of("hostRequires") for _ in range(self._pick(0, 1, 1, 1, 1, 1, 1, 2))]
        if self._rarely():
            panic = self.random.choice(["", "None", "ignore", "end", "stop"])
            children += [ET.Element("watchdog", panic=panic)] * self._pick(1, 1, 1, 2)
        if self._rarely():
            children.append(self._distro("distroRequires", 0))
        if self._rarely():
            duration = self.random.choice(["0", "3600", "8553600", "8553601", "-1", "1h"])
            children.append(ET.Element("reservesys", duration=duration, when="always"))
        if self._rarely():
            task = ET.Element("task", name="/a", role="any")
            task.append(ET.Element("params"))
            children.append(task)
        role = self.random.choice(["S", "r" * 64, "r" * 65])
        return self._with("recipe", children, self._odd(), attributes=self._maybe(role=role))

    def _distro(self, name: str, depth: int) -> ET.Element:
        given = {"op": self.random.choice(OPS if self._rarely() else OPS[:3])}
        if not self._rarely():
            given["value"] = "x"
        names = ["and", "distro_arch", "distro_name", "distro_family", "distro_name", "not"]
        inner = self._pick(0, 1, 1, 2) if depth < 3 else 0
        below = [self._distro(self.random.choice(names), depth + 1) for _ in range(inner)]
        if self.random.random() < 0.02:
            below.append(ET.Element("{urn:x}distro_name"))
        return self._with(name, below, attributes=given)

    def _unknown(self) -> dict[str, str]:
        """An attribute that means nothing there."""
        names = ["ops", "key", "driver", "{urn:x}op", "osmajor", "value"]
        return {self.random.choice(names): "1"} if self.random.random() < 0.02 else {}

    def _odd(self) -> list[ET.Element]:
        """What has no place everywhere."""
        names = [*sorted(CHILDREN["job"] | CHILDREN["recipe"]), "unknown", "{urn:x}note"]
        return [ET.Element(self.random.choice(names))] if self._rarely() else []

    def _filter(self, group: str, depth: int) -> list[ET.Element]:
        return [self._member(group, depth) for _ in range(self._pick(0, 1, 1, 2))]

    def _member(self, group: str, depth: int) -> ET.Element:
        of = group if self.random.random() < 0.95 else self.random.choice(list(ROWS))
        name = self.random.choice(list(ROWS[of]))
        row = ROWS[of][name]
        if row.within:
            deeper = self._filter(row.within, depth + 1) if depth < 4 else []
            return self._with(name, deeper, attributes=self._unknown())
        return self._leaf(name, row)

    def _leaf(self, name: str, row: Row) -> ET.Element:
        right = self.random.random() < 0.8
        value = self.random.choice(("1", "2048") if right else VALUES)
        element = ET.Element(name, {"value": value, **self._unknown()})
        if right and self.random.random() < 0.5:
            element.set("op", "=")
        elif not right and self.random.random() < 0.5:
            element.set("op", self.random.choice(OPS))
        if row.units and self.random.random() < 0.5:
            element.set("units", "MiB" if right else self.random.choice(UNITS))
        if self.random.random() < 0.03:
            element.set("units", self.random.choice(UNITS))
        if self.random.random() < 0.03:
            del element.attrib["value"]
        if self.random.random() < 0.02:
            element.append(ET.Element(self.random.choice(["and", "memory"])))
        if self.random.random() < 0.02:
            element.text = self.random.choice(["text", "\n "])
        return element

    def _with(
        self, name: str, *children: list[ET.Element], attributes: dict[str, str] | None = None
    ) -> ET.Element:
        element = ET.Element(name, attributes or {})
        all_of_them = [each for some in children for each in some]
        self.random.shuffle(all_of_them)
        element.extend(all_of_them)
        if self.random.random() < 0.02:
            element.text = "text"
        return element

    def _maybe(self, **attributes: str) -> dict[str, str]:
        return attributes if self._rarely() else {}

    def _rarely(self) -> bool:
        return self.random.random() < 0.2

    def _pick(self, *counts: int) -> int:
        return self.random.choice(counts)


def test_schema_and_reader_agree(tmp_path: Path) -> None:
    documents = [Writer(Random(number)).document() for number in range(DOCUMENTS)]
    by_reader = [taken_by_the_reader(each) for each in documents]
    assert 0.2 < sum(by_reader) / DOCUMENTS < 0.8
    by_schema = taken_by_the_schema(tmp_path, documents)
    differ = [d for d, *two in zip(documents, by_reader, by_schema, strict=True) if len({*two}) > 1]
    assert differ == []


@pytest.mark.parametrize("name", ["job.xml", "physical.xml", "set.xml"])
def test_the_command_prints_a_schema_that_takes_our_examples(tmp_path: Path, name: str) -> None:
    schema = tmp_path / "request.rng"
    schema.write_text(Rack.at(tmp_path).run("request", "schema").stdout)
    command = ["xmllint", "--noout", "--relaxng", str(schema), str(ROOT / "examples/lab" / name)]
    subprocess.run(command, check=True, capture_output=True)
