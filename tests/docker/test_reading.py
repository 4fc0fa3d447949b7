"""Images are read without rights: packed roots, and archives of layers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nospoon.dev.images import oci
from nospoon.providers.docker.host import text_of
from nospoon.providers.docker.program.roots import most_of_image
from nospoon.testing.container_root import busybox_root

DIRECTORY = ""
"""Content of what is a directory."""


def tar(files: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            data = content.encode() if isinstance(content, str) else content
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


def read(tmp_path: Path, image: bytes, *, most: int = 1 << 30) -> dict[str, bytes]:
    """What the engine would be given, by name. Raises `ValueError` with the reason."""
    path = tmp_path / "image"
    path.write_bytes(image)
    argv = [sys.executable, "-I", "-S", "-c", text_of("reading"), str(most)]
    with path.open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = [each for each in archive if each.isreg() or each.islnk()]
        contents = ((each.name, archive.extractfile(each)) for each in files)
        return {name: file.read() for name, file in contents if file is not None}


LOWER = {
    "sbin/": DIRECTORY,
    "sbin/init": "init",
    "etc/": DIRECTORY,
    "etc/changed": "before",
    "etc/removed": "before",
    "gone/": DIRECTORY,
    "gone/file": "before",
    "emptied/": DIRECTORY,
    "emptied/file": "before",
    "kind/": DIRECTORY,
    "kind/file": "before",
    "etc/removed-not": "stays",
}
UPPER = {
    "etc/": DIRECTORY,
    "etc/changed": "after",
    "etc/.wh.removed": "",
    ".wh.gone": "",
    "emptied/": DIRECTORY,
    "emptied/.wh..wh..opq": "",
    "emptied/new": "after",
    "kind": "a file",
}
MERGED = {
    "sbin/init": b"init",
    "etc/changed": b"after",
    "emptied/new": b"after",
    "kind": b"a file",
    "etc/removed-not": b"stays",
}


def blob(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def layout(*layers: bytes, nested: bool) -> bytes:
    """An OCI archive; `nested`: its index has an index of architectures."""
    manifest = json.dumps({"layers": [{"digest": f"sha256:{blob(each)}"} for each in layers]})
    blobs = [manifest.encode(), *layers]
    if nested:
        inner = json.dumps({"manifests": [{"digest": f"sha256:{blob(blobs[0])}"}]})
        blobs.insert(0, inner.encode())
    index = json.dumps({"manifests": [{"digest": f"sha256:{blob(blobs[0])}"}]})
    files = {f"blobs/sha256/{blob(each)}": each for each in blobs}
    return tar({"oci-layout": "{}", **files, "index.json": index})


def saved(*layers: bytes) -> bytes:
    """As `docker save` writes it."""
    files = {f"{number}/layer.tar": each for number, each in enumerate(layers)}
    return tar({**files, "manifest.json": json.dumps([{"Layers": list(files)}])})


@pytest.mark.parametrize(
    "image",
    [
        layout(gzip.compress(tar(LOWER)), tar(UPPER), nested=False),
        layout(tar(LOWER), gzip.compress(tar(UPPER)), nested=True),
        saved(tar(LOWER), tar(UPPER)),
    ],
    ids=["oci", "of architectures", "saved"],
)
def test_layers_are_put_together(tmp_path: Path, image: bytes) -> None:
    assert read(tmp_path, image) == MERGED


def linked(files: Mapping[str, str], links: Mapping[str, str]) -> bytes:
    """With hard links: name -> what it leads to."""
    written = io.BytesIO(tar(files))
    with tarfile.open(fileobj=written, mode="a") as archive:
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, target
            archive.addfile(member)
    return written.getvalue()


def test_a_link_to_a_file_that_a_layer_above_has_is_what_it_was(tmp_path: Path) -> None:
    lower = linked(
        {"sbin/init": "init", "bin/changed": "before", "bin/removed": "stays", "bin/same": "same"},
        {
            "bin/one": "./bin/changed",
            "bin/two": "bin/one",
            "bin/three": "bin/removed",
            "bin/gone": "bin/same",
            "bin/four": "bin/gone",
        },
    )
    upper = tar({"bin/changed": "after", "bin/.wh.removed": "", "bin/.wh.gone": ""})
    assert read(tmp_path, layout(lower, gzip.compress(upper), nested=False)) == {
        "sbin/init": b"init",
        "bin/changed": b"after",
        "bin/one": b"before",
        "bin/two": b"before",
        "bin/three": b"stays",
        "bin/same": b"same",
        "bin/four": b"same",
    }


@pytest.mark.parametrize("is_there", [True, False])
def test_of_several_architectures_the_one_of_this_machine_is_taken(
    tmp_path: Path, *, is_there: bool
) -> None:
    """Or else the first one that is there: an engine may save others by their names alone."""
    layers = {each: tar({"sbin/init": each}) for each in ("s390x", "amd64", "arm64")}
    manifests = {
        each: json.dumps({"layers": [{"digest": f"sha256:{blob(layer)}"}]}).encode()
        for each, layer in layers.items()
    }
    listed = [
        {"digest": f"sha256:{blob(text)}", "platform": {"architecture": each}}
        for each, text in manifests.items()
    ]
    listed.insert(0, {"digest": f"sha256:{blob(b'not saved')}"})
    kept = [*layers.values(), *(manifests.values() if is_there else [manifests["s390x"]])]
    files: dict[str, str | bytes] = {f"blobs/sha256/{blob(each)}": each for each in kept}
    index = json.dumps({"manifests": listed})
    image = tar({"oci-layout": "{}", **files, "index.json": index})
    mine = {"x86_64": b"amd64", "aarch64": b"arm64"}.get(os.uname().machine, b"s390x")
    assert read(tmp_path, image) == {"sbin/init": mine if is_there else b"s390x"}


def test_what_nospoon_builds_and_a_packed_root_are_read(tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(busybox_root())
    oci.make(tmp_path / "root.tar", tmp_path / "made", name="service", epoch=0)
    built = read(tmp_path, (tmp_path / "made").read_bytes())
    assert set(built) == {"bin/busybox", "sbin/init"}
    assert built == read(tmp_path, busybox_root())
    assert built == read(tmp_path, gzip.compress(busybox_root()))


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (layout(tar(UPPER), nested=False), "no /sbin/init"),
        (tar({"oci-layout": "{}", "index.json": "{}"}), "its manifest names no layers"),
        (tar({"oci-layout": "{}", "index.json": "no JSON"}), "its begin"),
        (layout(b"not a tar", nested=False), "truncated header"),
        (layout(b"\x28\xb5\x2f\xfd", nested=False), "a layer is compressed by zstd"),
        (tar({"sbin/init": b"x" * 2000}), "it has more than 0 MiB"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, image: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(tmp_path, image, most=1000 if b"x" * 2000 in image else 1 << 30)


def test_devices_and_attributes_of_overlays_are_left_out(tmp_path: Path) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind in (("sbin/init", tarfile.REGTYPE), ("dev/sda", tarfile.BLKTYPE)):
            member = tarfile.TarInfo(name)
            member.type = kind
            member.pax_headers = {
                "SCHILY.xattr.trusted.overlay.redirect": "/etc",
                "SCHILY.xattr.security.capability": "granted",
            }
            archive.addfile(member)
    path = tmp_path / "image"
    path.write_bytes(written.getvalue())
    with path.open("rb") as file:
        argv = [sys.executable, "-I", "-S", "-c", text_of("reading"), "1000000"]
        done = subprocess.run(argv, stdin=file, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        (init,) = archive.getmembers()
    assert init.pax_headers == {"SCHILY.xattr.security.capability": "granted"}


@dataclass
class Disk:
    """What statvfs(3) says of one of a gigabyte, of which so many blocks are free."""

    f_bavail: int
    f_blocks: int = 1 << 18
    f_frsize: int = 4096


def test_images_that_are_packed_well_leave_a_tenth_of_a_disk() -> None:
    """Each took half of what was free, by some kilobytes: seven left a hundredth of the disk."""
    disk = Disk(f_bavail=1 << 18)
    for _ in range(30):
        disk.f_bavail -= most_of_image(disk) // disk.f_frsize  # type: ignore[arg-type]
    assert disk.f_bavail >= disk.f_blocks // 10
    assert most_of_image(Disk(f_bavail=1000)) == 0  # type: ignore[arg-type]
    assert most_of_image(Disk(f_bavail=disk.f_blocks)) > (1 << 30) * 0.4  # type: ignore[arg-type]
