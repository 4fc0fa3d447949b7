"""A cluster file at the client: read, checked, and the files that it names uploaded."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from nospoon.api.client import Client
from nospoon.cli.echo import echo, report_if_long
from nospoon.cli.follow import finish, follow, sent
from nospoon.errors import SpecError, UsageError
from nospoon.model.cloud_images import IN_CLOUD
from nospoon.model.images import KEPT, LOADED
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.model.cluster import Cluster

CHUNK = 1 << 20
ENDINGS = (".yaml", ".yml")
DEFAULT_HOST = "here"
_NAME = re.compile(r"[a-z0-9-]{1,63}\Z")
FILES = ("image", "kernel", "initrd", "certificate")
"""Keys that name files. Without these words it is the daemon alone who reads the cluster file."""
_NO_INVENTORY = {
    "simulated": "simulated",
    **{uri: f"{{libvirt: '{uri}'}}" for uri in ("qemu:///system", "qemu:///session")},
}
"""What is meant as the only host, where no such file exists -> what to write."""
_NO_NAME = frozenset("{&*|>!#")
"""With what a value begins in YAML that is no plain or quoted text."""


def read_cluster(path: str) -> Cluster:
    """The cluster that a file describes. Raises `SpecError`."""
    from nospoon.clusterfile.load import load  # noqa: PLC0415  (imports pydantic)

    name, text = _read(path)
    return load(whole(text, name, _base(path)), file=name)


def read_request(client: Client | None, path: str) -> dict[str, object]:
    """The body of a cluster request; with a client, what the file names is uploaded, or
    fetched by the daemon, while its progress is shown.
    """
    name, text = _read(path)
    base = _base(path)
    text = whole(text, name, base)
    if client is not None and not any(each in text for each in FILES):
        return {"file": name, "text": text, "uploads": {}}
    from nospoon.clusterfile.load import load  # noqa: PLC0415  (imports pydantic)

    cluster = load(
        text,
        file=name,
        local_file=lambda each: _why_unreadable(base / each),
        local_pair=lambda certificate, key: _why_unusable(base / certificate, base / key),
    )
    wanted = {disk.image for node in cluster.nodes for disk in node.disks if disk.image}
    wanted = {each for each in wanted if not each.startswith((KEPT, IN_CLOUD))}
    wanted |= {name for lab in cluster.labs for name in lab.images}
    wanted |= {f for each in cluster.profiles for f in (each.kernel, *each.initrd) if f}
    local = {each for each in wanted if not each.startswith(("http://", "https://", LOADED))}
    if given := cluster.addressing.certificate:
        local |= {given.certificate, given.key}
        wanted |= local
    digests = {each: _digest(base / each) for each in local}
    body: dict[str, object] = {"file": name, "text": text, "uploads": digests}
    if client is not None and digests:
        _upload(client, {digests[each]: base / each for each in local})
    if client is not None and any(each.startswith("http") for each in wanted - local):
        fetching = client.post("/v1/fetch", body)
        if fetching is not None:
            finish(follow(client, fetching["id"]))
    return body


def hosts_request(path: str | None, hosts: Sequence[str]) -> dict[str, object]:
    """The body of a request about hosts: those of a file, and those given as [NAME=]URI."""
    file, text = _read(path) if path else ("", "")
    if path:
        text = whole(text, file, _base(path))
    named = dict(_host(each) for each in hosts)
    return {"hosts": named, "file": file, "text": text}


def _host(given: str) -> tuple[str, str]:
    """Name and URI; a URI may hold an equals sign, too."""
    name, named, uri = given.partition("=")
    return (name, uri) if named and _NAME.match(name) else (DEFAULT_HOST, given)


def _base(path: str) -> Path:
    """Where the paths in a cluster file begin."""
    return Path(path).resolve().parent if path != "-" else Path.cwd()


def whole(text: str, name: str, base: Path) -> str:
    """The file with everything written out that the client alone can read."""
    text = _with_cloud(_with_inventory(text, name, base), name)
    return _with_roles(_with_user_data(text, name, base), name, base)


def _with_roles(text: str, name: str, base: Path) -> str:
    """The file with each `role: PATH` of a service replaced by what is in that file."""
    if "role" not in text:
        return text
    from nospoon.clusterfile.document import Document  # noqa: PLC0415  (imports YAML)
    from nospoon.clusterfile.services import SCRIPT  # noqa: PLC0415  (imports pydantic)

    document = Document(text, name)
    services = document.value.get("services") if isinstance(document.value, dict) else None
    for service, entry in services.items() if isinstance(services, dict) else ():
        path = ("services", service, "role")
        given = entry.get("role") if isinstance(entry, dict) else None
        if not isinstance(given, str) or not given or given.startswith(SCRIPT):
            continue
        content, why = _content(base / given)
        if not why and not content.startswith(SCRIPT):
            why = f"{base / given} does not begin with a line `#!` and a program"
        document = Document(text, name)
        if why:
            raise SpecError([document.problem(path, f"cannot read the role: {why}")])
        text = document.replaced(path, json.dumps(content, ensure_ascii=False))
    return text


def _with_user_data(text: str, name: str, base: Path) -> str:
    """The file with each `user_data: {file: PATH}` replaced by what is in that file."""
    if "user_data" not in text:
        return text
    from nospoon.clusterfile.document import Document  # noqa: PLC0415  (imports YAML)

    for path, given in _named_user_data(Document(text, name).value):
        document = Document(text, name)
        content, why = _content(base / given)
        if why:
            raise SpecError([document.problem(path, f"cannot read user data: {why}")])
        text = document.replaced(path, json.dumps(content, ensure_ascii=False))
    return text


def _content(path: Path) -> tuple[str, str]:
    """The text of a file of user data, or why there is none."""
    from nospoon.model.cluster import MOST_USER_DATA  # noqa: PLC0415  (few commands need it)

    try:
        if path.stat().st_size > MOST_USER_DATA:
            return "", f"{path} is larger than {MOST_USER_DATA >> 10} KiB"
        return path.read_text(encoding="utf-8"), ""
    except OSError as error:
        return "", f"{path}: {error.strerror}"
    except UnicodeDecodeError as error:
        return "", f"{path}: {reason(error)}"


def _named_user_data(value: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where a cluster file names a file of user data, and its path."""
    from nospoon.clusterfile.references import distros, layers  # noqa: PLC0415  (imports pydantic)

    for path, layer in (*layers(value), *distros(value)) if isinstance(value, dict) else ():
        given = layer.get("user_data")
        file = given.get("file") if isinstance(given, dict) and len(given) == 1 else None
        if isinstance(file, str) and file:
            yield (*path, "user_data"), file


def _with_inventory(text: str, name: str, base: Path) -> str:
    """The file with `hosts: INVENTORY` or `hosts: INVENTORY#GROUP` written out in that line."""
    if not any(map(_may_name_inventory, text.splitlines())):
        return text
    from nospoon.clusterfile.document import Document  # noqa: PLC0415  (imports YAML)

    document = Document(text, name)
    hosts = document.value.get("hosts") if isinstance(document.value, dict) else None
    if not isinstance(hosts, str):
        return text
    path, _, group = hosts.partition("#")
    why = _why_unreadable(base / path)
    if why and not (base / path).is_dir():
        hint = f"Write `hosts: {{here: {_NO_INVENTORY[hosts]}}}`" if hosts in _NO_INVENTORY else ""
        raise SpecError([document.problem(("hosts",), f"cannot read the inventory {why}", hint)])
    from nospoon.cli import ansible  # noqa: PLC0415  (imports pydantic)

    found = ansible.hosts_of(ansible.inventory(str(base / path)), group or "all")
    return document.replaced(("hosts",), json.dumps(found))


def _may_name_inventory(line: str) -> bool:
    """Whether it can be `hosts: INVENTORY`; most files need no parser here."""
    key, _, value = line.partition(":")
    begins = value.lstrip()[:1]
    return key == "hosts" and bool(begins) and begins not in _NO_NAME


def _with_cloud(text: str, name: str) -> str:
    """The file with the names of clouds in `ironic` and `hosts` replaced by what clouds.yaml says
    of them.
    """
    if "cloud" not in text:
        return text
    from nospoon.clusterfile.document import Document  # noqa: PLC0415  (imports YAML)

    for path, given in _clouds(Document(text, name).value):
        from nospoon.cli.clouds import cloud  # noqa: PLC0415  (imports openstacksdk)

        text = Document(text, name).replaced(path, json.dumps(cloud(given)))
    return text


def _clouds(value: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where a file has the name of a cloud, and the name."""
    hosts = value.get("hosts") if isinstance(value, dict) else None
    places: list[tuple[str, ...]] = [("ironic",)]
    if isinstance(hosts, dict):
        places += [("hosts", key, "openstack") for key in hosts if isinstance(key, str)]
    for path in places:
        found = value
        for part in (*path, "cloud"):
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, str):
            yield (*path, "cloud"), found


def _read(path: str) -> tuple[str, str]:
    if path == "-":
        return "<stdin>", sys.stdin.read()
    try:
        return path, Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=_meant(path)) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error


def _meant(path: str) -> str:
    """Other commands take the name of a cluster, too."""
    if path.endswith(ENDINGS):
        return ""
    files = (f"{path}{ending}" for ending in ENDINGS if Path(f"{path}{ending}").is_file())
    file = next(files, "")
    return f"Did you mean {file}?" if file else "Expected a cluster file, such as cluster.yaml."


def _why_unreadable(path: Path) -> str:
    """ "" when it can be read; paths are relative to the cluster file."""
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return f"{path}: {error.strerror}"


def _why_unusable(certificate: Path, key: Path) -> tuple[str, str] | None:
    """Of files that can be read; of others that is told."""
    if _why_unreadable(certificate) or _why_unreadable(key):
        return None
    from nospoon.runtime import clock, tls  # noqa: PLC0415  (imports cryptography)

    return tls.why_unusable(certificate, key, now=clock.unix())


def _digest(path: Path, *, patience: float = 2.0) -> str:
    """By which the daemon knows the content. Images of many GiB take minutes: after so many seconds
    that is reported.
    """
    size = path.stat().st_size
    reading = f"Reading {path.name} ({_amount(size)}): the daemon may have its content already"
    with path.open("rb") as content, report_if_long(reading, seconds=patience):
        return hashlib.file_digest(content, "sha256").hexdigest()


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{-(-size >> 10)} KiB"


def upload(client: Client, path: Path) -> str:
    """Have the daemon keep a file; returns its SHA-256."""
    why = _why_unreadable(path)
    if why:
        raise UsageError(f"cannot read {why}")
    digest = _digest(path)
    _upload(client, {digest: path})
    return digest


def _upload(client: Client, files: dict[str, Path]) -> None:
    from nospoon.api.wire import MAX_DIGESTS  # noqa: PLC0415  (imports pydantic)

    left = iter(files)
    rounds = iter(lambda: list(islice(left, MAX_DIGESTS)), [])
    asked = [client.post("/v1/files/missing", some) for some in rounds]
    for digest in chain.from_iterable(asked):
        path = files[digest]
        size = path.stat().st_size
        echo(f"Uploading {path.name} ({_amount(size)})", err=True)
        with path.open("rb") as content, sent(content, size) as shown:
            client.upload(digest, shown, size)


def cluster_name(reference: str) -> str:
    """A cluster by name, or by the file that describes it."""
    if not (reference == "-" or Path(reference).suffix in {".yaml", ".yml"}):
        if not _NAME.match(reference):
            raise UsageError(
                f"expected the name of a cluster or its file, got {reference!r}",
                hint="`nospoon status` lists the names of yours.",
            )
        return reference
    from nospoon.clusterfile.document import Document  # noqa: PLC0415  (imports YAML)

    name, text = _read(reference)
    document = Document(text, name)
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("cluster"), str):
        raise SpecError([document.problem((), "missing key 'cluster'")])
    return str(value["cluster"])
