"""What libraries say never reaches a user: messages are ours."""

from __future__ import annotations

import ast
import errno
import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic_core.core_schema import ErrorType

from nospoon.clusterfile.load import load
from nospoon.clusterfile.sections import wanted
from nospoon.control.content.fetch import Access, Transfer, download
from nospoon.errors import NospoonError, SpecError
from nospoon.runtime.reasons import reason
from nospoon.runtime.tls import why_unusable
from nospoon.store.database import Database

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(
    r"Input should|validation error|<urlopen|\[Errno|\[SSL|HTTPConnectionPool|Max retries"
    r"|sqlalche\.me|psycopg\.|sqlite3\.|MalformedFraming|InvalidData|Unable to load PEM|base 10"
    r"|codec can't|Traceback|getaddrinfo|cryptography\.|_ssl\.c|object at 0x|invalid literal"
    r"|Port could not be cast"
)
"""Texts of pydantic, urllib, ssl, requests, SQLAlchemy, its drivers, cryptography and Python."""
HEAD = "cluster: c\nhosts: {here: simulated}\n"
FILES = (
    "nodes: [{count: two}]", "nodes: [{count: 1.5}]", "nodes: [{count: {}}]", "nodes: 3",
    "nodes: [3]",
    "nodes: [{name: [a]}]", "nodes: [{cpus: true}]", "nodes: [{memory: []}]", "nodes: [{tpm: 3}]",
    "nodes: [{disks: x}]", "nodes: [{nics: {a: 1}}]", "nodes: [{labels: {b: true, a: }}]",
    "nodes: [{traits: gold}]", "nodes: [{boot_order: [http, 3]}]", "nodes: [{placement: 3}]",
    "nodes: [{overrides: 1}]", "id: x\nnodes: [{}]",
    "networks: {a: {cidr: 10.0.0.5/24}}\nnodes: [{}]",
    "networks: {a: {cidr: 10.0.0.0}}\nnodes: [{}]", "networks: {a: {vlan: x}}\nnodes: [{}]",
    "networks: {a: {mtu: 1e9}}\nnodes: [{}]", "networks: {a: 3}\nnodes: [{}]",
    "bmc: {address: here}\nnodes: [{}]", "bmc: {pool: 10.0.0.0/99}\nnodes: [{}]",
    "bmc: {ports: a-b}\nnodes: [{}]", "bmc: {redfish_port: x}\nnodes: [{}]", "bmc: 7\nnodes: [{}]",
    "boot: {a: {kernel: [x]}}\nnodes: [{}]", "ironic: {endpoint: 3}\nnodes: [{}]",
    "ironic: {endpoint: 'http://h:x/'}\nnodes: [{}]", "nova: 3\nnodes: [{}]", "nodes: {{ n }}",
    "nodes:\n\t- {}", "nodes: [{firmware: UEFI}]", "throwaway: maybe\nnodes: [{}]",
)  # fmt: skip


def _texts(error: NospoonError) -> str:
    problems = error.problems if isinstance(error, SpecError) else ()
    return f"{error} {error.hint} {' '.join(map(str, problems))}"


@pytest.mark.parametrize("text", FILES)
def test_problems_of_a_file_are_told_in_our_words(text: str) -> None:
    with pytest.raises(NospoonError) as refused:
        load(f"{HEAD}{text}\n", file="c.yaml")
    assert not FOREIGN.search(_texts(refused.value)), _texts(refused.value)


def test_every_kind_of_error_of_pydantic_has_words() -> None:
    context = {
        "ge": 1,
        "gt": 1,
        "le": 1,
        "lt": 1,
        "max_length": 1,
        "min_length": 1,
        "expected": "a",
    }
    said = {kind: wanted(kind, context) for kind in get_args(ErrorType)}
    assert said["string_type"] == "text"
    assert said["int_parsing"] == said["int_from_float"] == "a whole number"
    assert (said["greater_than"], said["less_than"]) == ("more than 1", "less than 1")
    unclear = {kind for kind, each in said.items() if each == "another kind of value"}
    assert not {each for each in unclear if "than" in each or each.startswith(("int", "float"))}
    assert not any(FOREIGN.search(each) for each in said.values())


def _raised(cause: BaseException) -> OSError:
    """As requests wraps what urllib3 and the socket module raise."""
    try:
        raise OSError("HTTPConnectionPool(host='h'): Max retries exceeded") from cause
    except OSError as error:
        return error


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (urllib.error.URLError(REFUSED), "connection refused"),
        (_raised(REFUSED), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "its host name is not known"),
        (FileNotFoundError(2, "No such file or directory"), "no such file or directory"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] (_ssl.c:1006)"), "TLS failed: the server"),
        (http.client.BadStatusLine("x"), "its answer is not HTTP"),
        (http.client.RemoteDisconnected("x"), "the server closed the connection"),
        (TimeoutError("timed out"), "no answer in time"),
        (
            UnicodeDecodeError("utf-8", b"a\n\xff", 2, 3, "x"),
            "it is not UTF-8 text (line 2, byte 3",
        ),
        (RuntimeError("<object at 0x7f>"), "an unexpected error (RuntimeError)"),
    ],
)
def test_reasons_are_told_in_our_words(error: BaseException, told: str) -> None:
    assert reason(error).startswith(told)
    assert not FOREIGN.search(reason(error))


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/x", "http://nowhere.invalid/x", "http://h:x/", "http://[::1/", "ftp://h/"],
)
def test_downloads_fail_in_our_words(url: str, tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as target, pytest.raises(NospoonError) as failed:
        download(url, Access(), target, Transfer())
    assert not FOREIGN.search(_texts(failed.value)), _texts(failed.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", b"\xff"],
)
def test_certificates_are_refused_in_our_words(content: bytes, tmp_path: Path) -> None:
    place = tmp_path / "x.pem"
    place.write_bytes(content)
    assert why_unusable(place, place, now=0.0) == ("certificate", "it is not a certificate in PEM")


def test_databases_are_refused_in_our_words(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"\xff" * 8192)
    for url in (
        f"sqlite:///{damaged}", f"sqlite:///{tmp_path}/none/x.db", "postgresql+psycopg://127.0.0.1:1/x",
        "bogus://x", "x",
    ):  # fmt: skip
        with pytest.raises(NospoonError) as refused:
            Database.open(url)
        assert not FOREIGN.search(_texts(refused.value)), _texts(refused.value)


OURS = {
    "NospoonError", "UsageError", "ProviderError", "HostUnreachable", "Conflict", "Forbidden",
    "Gone",
    "NotFound", "NotOurs", "PlanRefused", "SpecError", "Unfetchable", "Superseded", "MissingTool",
    "BoundError", "Garbage", "OutOfSpace", "DecodeError", "TooCostly", "_Away", "_Unusable",
    "Damaged", "BadVariables", "UnknownFunction", "FilterError",
}  # fmt: skip
"""Errors whose text is ours, by the names that `except` gives."""
PARSERS = {"runtime/runner.py", "clusterfile/host_at.py", "importers/source.py"}
"""Where a `ValueError` is of a parser of ours: of a URI, a destination, a field of a file."""


def _caught(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind).rpartition(".")[2] for kind in kinds if kind is not None}


def _raises_with_text_of(handler: ast.ExceptHandler) -> Iterator[int]:
    """Where an error of ours is raised that repeats the text of the one that was caught."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            said = ast.unparse(node.exc)
            if re.search(rf"\{{{handler.name}\}}|str\({handler.name}\)", said):
                yield node.lineno


def test_no_message_repeats_the_text_of_an_error_of_a_library() -> None:
    found = []
    for path in sorted((ROOT / "src" / "nospoon").rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler) or not node.name:
                continue
            parser = str(path.relative_to(ROOT / "src" / "nospoon")) in PARSERS
            if not _caught(node) <= (OURS | {"ValueError"} if parser else OURS):
                where = f"{path.relative_to(ROOT)}:{{}}: {', '.join(sorted(_caught(node)))}"
                found += [where.format(line) for line in _raises_with_text_of(node)]
    assert not found, "\n".join(found)
