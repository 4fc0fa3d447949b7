"""No branch on the kind of a connection outside the providers and the cluster file: the next
connection is an addition.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import nospoon
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Host
from nospoon.model.connections import ConnectionKind, ConnectionSpec, Libvirt, Simulated

SOURCES = Path(nospoon.__file__).parent
MAY_BRANCH = frozenset({"providers", "clusterfile"})
AT_THE_SEAM = frozenset({
    "model/connections.py",  # each says what it is
    "store/hosts.py",  # a record becomes the value
    "daemon/connections.py",  # the value becomes an open connection
})  # fmt: skip
NAMES = frozenset({ConnectionKind.__name__, *(each.__name__ for each in get_args(ConnectionSpec))})


def sources() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.py")):
        within = path.relative_to(SOURCES)
        if within.parts[0] not in MAY_BRANCH and str(within) not in AT_THE_SEAM:
            yield path


def branches(tree: ast.AST) -> Iterator[int]:
    """Lines on which a kind or a connection's class decides, or a URI's form does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            asked: ast.AST | None = node.cls
        elif isinstance(node, (ast.Compare, ast.MatchValue)):
            asked = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node if node.func.id in ("isinstance", "issubclass") else None
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            asked = node.test
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            asked = node.value if node.value.id == ConnectionKind.__name__ else None
        else:
            continue
        parts = list(ast.walk(asked)) if asked is not None else []
        named = {part.id for part in parts if isinstance(part, ast.Name)}
        of_a_host = any(
            isinstance(part, ast.Attribute)
            and part.attr in ("uri", "kind")
            and isinstance(part.value, ast.Name | ast.Attribute)
            and (part.value.id if isinstance(part.value, ast.Name) else part.value.attr)
            in ("host", "connection")
            for part in parts
        )
        if named & NAMES or of_a_host:
            yield asked.lineno if isinstance(asked, ast.expr | ast.pattern) else 0


def test_nothing_branches_on_the_kind_of_a_connection() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sources()
        for line in branches(ast.parse(path.read_text()))
    }
    assert found == set()


@pytest.mark.parametrize(
    "written",
    [
        "if host.kind is ConnectionKind.SIMULATED: pass",
        "x = 1 if member.host.uri else 2",
        "isinstance(host.connection, Libvirt)",
        "match host.connection:\n    case Simulated(): pass",
        "match host.kind:\n    case ConnectionKind.LIBVIRT: pass",
        "x = isinstance(each.connection, OpenStack)",
        "match each.connection:\n    case Docker() | Lxc(): pass",
        "x = has(cluster, ConnectionKind.LXC)",
        "def has(kind): return any(host.connection.kind is kind for host in hosts)",
    ],
)
def test_a_branch_would_be_found(written: str) -> None:
    assert list(branches(ast.parse(written)))


def test_what_each_connection_declares() -> None:
    system, session = Host("a"), Host("b", Libvirt("qemu:///session"))
    simulated = Host("c", Simulated())
    assert system.declares.has_bridges
    assert system.declares.boot is BootMethod.NATIVE
    assert not session.declares.has_networks
    assert session.declares.boot is BootMethod.SCRIPT
    assert simulated.declares.has_networks
    assert not simulated.declares.is_real
    assert [each.where for each in (system, session, simulated)] == [
        "qemu:///system",
        "qemu:///session",
        "simulated",
    ]


def test_a_server_is_one_under_each_of_its_names() -> None:
    by_uri = Host("a", Libvirt("qemu+ssh://kvm1/system"), ssh="ssh://kvm1")
    assert by_uri.server == Host("b", Libvirt("qemu+ssh://kvm1/system")).server
    assert Host("a").server == Host("b").server != by_uri.server
    assert Host("a", ssh="kvm1").server != Host("a").server
    twins = [Host(name, Simulated()) for name in "cd"]
    assert twins[0].server != twins[1].server
