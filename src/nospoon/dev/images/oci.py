"""An OCI archive of a root file system: an image layout, packed as a tar.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

_TYPE = "application/vnd.oci.image"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of Go's for machines (config.md, GOARCH)."""
CHUNK = 1 << 20
STOP = "SIGRTMIN+3"
"""What systemd shuts down by (systemd(1))."""


def make(tar: Path, archive: Path, *, name: str, epoch: int, machine: str = "") -> None:
    """Write it: one layer, whose first process is init. `epoch`: Unix seconds of all its times;
    `machine`: whose programs are in it, as uname(1) calls it, "" for this one's.
    """
    machine = machine or os.uname().machine
    with tempfile.TemporaryFile(dir=archive.parent) as layer:
        plain = _compressed(tar, layer)
        created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        config = _json({
            "created": created, "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Cmd": ["/sbin/init"], "StopSignal": STOP},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
        })  # fmt: skip
        size = layer.seek(0, io.SEEK_END)
        layer.seek(0)
        packed = hashlib.file_digest(layer, "sha256").hexdigest()
        manifest = _json({
            "schemaVersion": 2, "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": _described(config, "config.v1+json"),
            "layers": [{
                "mediaType": f"{_TYPE}.layer.v1.tar+gzip", "digest": f"sha256:{packed}",
                "size": size,
            }],
        })  # fmt: skip
        reference = {"org.opencontainers.image.ref.name": name}
        listed = {**_described(manifest, "manifest.v1+json"), "annotations": reference}
        index = {
            "schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [listed],
        }  # fmt: skip
        files: list[tuple[str, IO[bytes], int]] = [
            ("oci-layout", *_text(_json({"imageLayoutVersion": "1.0.0"}))),
            ("index.json", *_text(_json(index))),
            (_blob(config), *_text(config)),
            (_blob(manifest), *_text(manifest)),
            (f"blobs/sha256/{packed}", layer, size),
        ]
        layer.seek(0)
        _pack(archive, files, epoch)


def _pack(archive: Path, files: list[tuple[str, IO[bytes], int]], epoch: int) -> None:
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as packed:
        for path, content, size in files:
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = size, 0o644, epoch
            packed.addfile(member, content)


def _compressed(tar: Path, layer: IO[bytes]) -> str:
    """SHA-256 of the layer before it is compressed. gzip's header has no time and no name."""
    digest = hashlib.sha256()
    with (
        tar.open("rb") as source,
        gzip.GzipFile(filename="", mode="wb", fileobj=layer, mtime=0, compresslevel=6) as packed,
    ):
        for chunk in _chunks(source):
            digest.update(chunk)
            packed.write(chunk)
    return digest.hexdigest()


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        yield chunk


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _described(content: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def _text(content: bytes) -> tuple[IO[bytes], int]:
    return io.BytesIO(content), len(content)
