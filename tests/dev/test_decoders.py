"""What threads of the daemon decode, msgspec has met when their modules are imported."""

from __future__ import annotations

import base64
import subprocess
import sys

UNMET = """
import ast, dataclasses, sys, typing
from pathlib import Path
import msgspec
import nospoon.daemon.wiring
from nospoon.model.cluster import Node
from nospoon.providers.simulated.world import SHAPES

def within(kind, seen):
    "Dataclasses of which its values are made."
    if isinstance(kind, type) and kind not in seen:
        seen.add(kind)
        if dataclasses.is_dataclass(kind):
            yield kind
        if dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct):
            for each in typing.get_type_hints(kind).values():
                yield from within(each, seen)
    for each in typing.get_args(kind):
        yield from within(each, seen)

for word in (Node, *SHAPES.values()):  # asked for by the values of tables
    for kind in within(word, set()):
        if "__msgspec_cache__" not in vars(kind):
            print(f"{word.__name__}: {kind.__name__}")
for name, module in sorted(sys.modules.items()):
    if not name.startswith("nospoon.") or not module.__file__:
        continue
    for call in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        asked = [each.value for each in call.keywords if each.arg == "type"]
        if call.func.attr == "convert":
            asked += call.args[1:2]
        for word in (each for one in asked for each in ast.walk(one) if isinstance(each, ast.Name)):
            for kind in within(vars(module).get(word.id), set()):
                if "__msgspec_cache__" not in vars(kind):
                    print(f"{name}:{call.lineno}: {word.id}: {kind.__name__}")
"""
AT_ONCE = """
import sys, threading
from nospoon.services.netboot import copies

sys.setswitchinterval(1e-6)
begin, found = threading.Barrier(8), []

def read():
    begin.wait()
    found.append(copies.record_in(sys.argv[1]))

threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(sum(each is not None for each in found))
"""
RECORD = b"""{
"key": {"kind": "netboot", "host": "h", "name": "n"},
"shape": {"bridge": "b", "address": "192.0.2.1/24", "range": ["", ""], "reservations": []},
"tag": {"deployment": "d", "cluster": "00000000-0000-0000-0000-000000000001"}
}"""


def said(program: str, *argv: str) -> str:
    line = [sys.executable, "-c", program, *argv]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_thread_is_the_first_to_decode_a_type() -> None:
    """One that is not the first while another one is ends the process."""
    assert said(UNMET) == ""


def test_records_of_many_hosts_are_read_at_once() -> None:
    for _ in range(2):
        assert said(AT_ONCE, base64.b64encode(RECORD).decode()) == "8\n"
