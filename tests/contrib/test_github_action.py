"""The GitHub action: its steps run as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.contrib.conftest import CONTRIB, OFFLINE

from nospoon.testing.rack import Rack

ACTION = CONTRIB / "github-action"


@dataclass
class Runner:
    """https://docs.github.com/en/actions/reference/workflows-and-actions/metadata-syntax"""

    rack: Rack
    path: str
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    said: str = ""

    def use(self, action: Path, **given: str) -> dict[str, str]:
        """Run an action's steps; its outputs."""
        told = yaml.safe_load((action / "action.yml").read_text())
        inputs = {name: str(each.get("default", "")) for name, each in told["inputs"].items()}
        assert given.keys() <= inputs.keys()
        needed = {name for name, each in told["inputs"].items() if each.get("required")}
        assert needed <= given.keys()
        known = {f"inputs.{name}": value for name, value in {**inputs, **given}.items()}
        known["github.action_path"] = str(action)
        for step in told["runs"]["steps"]:
            if self.runs(step.get("if", ""), known):
                self.run(step, known)
        outputs = {name: each["value"] for name, each in told["outputs"].items()}
        return {name: self.filled(value, known) for name, value in outputs.items()}

    def runs(self, condition: str, known: dict[str, str]) -> bool:
        if not condition:
            return True
        name, wanted = re.fullmatch(r"([\w.-]+) == '(\w*)'", condition).groups()  # type: ignore[union-attr]
        return known[name] == wanted

    def filled(self, text: str, known: dict[str, str]) -> str:
        outputs = {
            f"steps.{step}.outputs.{name}": value
            for step, told in self.steps.items()
            for name, value in told.items()
        }
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda m: {**known, **outputs}[m[1]], text)

    def run(self, step: dict[str, Any], known: dict[str, str]) -> None:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "what users say reaches the shell as variables only"
        script, files = self.rack.directory / "step.sh", {}
        script.write_text(step["run"])
        for name in ("GITHUB_OUTPUT", "GITHUB_PATH"):
            files[name] = self.rack.directory / name
            files[name].write_text("")
        env = {name: self.filled(value, known) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            env={
                **self.rack.environment, **OFFLINE, **env, "PATH": self.path,
                "RUNNER_TEMP": str(self.rack.directory),
                **{name: str(path) for name, path in files.items()},
            },
            cwd=self.rack.directory, text=True, capture_output=True, check=False, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.said += done.stdout
        self.path = ":".join([*files["GITHUB_PATH"].read_text().split(), self.path])
        self.steps[step.get("id", "")] = outputs_of(files["GITHUB_OUTPUT"].read_text())


def outputs_of(text: str) -> dict[str, str]:
    """`name=value` and `name<<END` lines."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        if match := re.fullmatch(r"([\w-]+)<<(.+)", line):
            found[match[1]] = "\n".join(iter(lambda: next(lines), match[2]))
        else:
            name, _, found_value = line.partition("=")
            found[name] = found_value
    return found


def test_a_job_gets_a_rack_and_gives_it_back(rack: Rack, wheel: Path) -> None:
    name = rack.name()
    rack.file(
        f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{count: 2}}]\n",
        "ci.yaml",
    )
    stub = rack.directory / "bin/apt-get"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\necho apt-get "$@"\n')
    stub.chmod(0o755)
    runner = Runner(rack, f"{stub.parent}:{os.environ['PATH']}")
    told = runner.use(ACTION, file="ci.yaml", package=str(wheel))
    assert "apt-get install" in runner.said
    assert "libvirt-daemon-system" in runner.said
    assert told["cluster"] == name
    bmcs = {each["node"]: each for each in json.loads(told["bmcs"])}
    assert bmcs == rack.bmcs(name)
    for each in bmcs.values():
        assert f"::add-mask::{each['password']}\n" in runner.said
    kept = runner.use(ACTION / "down", cluster=told["cluster"])
    assert Path(kept["bundle"]).stat().st_size > 0
    assert "no cluster" in rack.run("status", name, status=2).stderr
