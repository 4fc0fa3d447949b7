"""Images that are built of one root: the same bytes each time, and what is in them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.cli.commands import image
from nospoon.control.content.images import root_facts
from nospoon.dev.images import build, disk, filesystem, oci
from nospoon.dev.images.build import Format
from nospoon.dev.images.root import Root
from nospoon.errors import MissingTool, ProviderError, UsageError
from nospoon.runtime import process
from nospoon.testing.ironic import until

EPOCH = 1_700_000_000
SMALL = Root(packages=("busybox-static",), variant="essential")
ENV = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
CAPABILITY = b"\x01\x00\x00\x02\x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
"""cap_net_raw=ep (linux/capability.h, vfs_cap_data)"""


def tar_of(directory: Path, *, kernel: bool = True) -> Path:
    """A root file system with every kind of file, as mmdebstrap packs them."""
    path = directory / "root.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:

        def add(name: str, content: bytes = b"", **fields: object) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o644, EPOCH - 5
            for key, value in fields.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))

        for name in ("./", "./etc", "./etc/a b", "./dev", "./usr", "./usr/bin", "./boot"):
            add(name, type=tarfile.DIRTYPE, mode=0o755)
        add("./bin", type=tarfile.SYMTYPE, linkname="usr/bin")
        add('./etc/a b/it\'s "x"', b"quoted", uid=100, gid=5, mode=0o600)
        add("./etc/large", bytes(range(256)) * 5000)
        add("./etc/empty")
        ping = {"SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape")}
        add("./usr/bin/ping", b"ping", mode=0o4755, pax_headers=ping)
        add("./usr/bin/ping4", type=tarfile.LNKTYPE, linkname="./usr/bin/ping")
        add("./dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
        if kernel:
            for version in ("6.1.0-9", "6.1.0-40"):
                add(f"./boot/vmlinuz-{version}", b"kernel")
                add(f"./boot/initrd.img-{version}", b"initrd")
    return path


@pytest.fixture(autouse=True)
def _epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))


async def test_a_build_of_the_same_packages_is_the_same_and_a_container_begins_with_it(
    tmp_path: Path,
) -> None:
    own = tmp_path / "it's own"
    own.write_text("ours")
    own.chmod(0o751)
    commands = ["busybox stat -c %a '/etc/it'\\''s own' >/etc/said", "echo 'again' >>/etc/said"]
    wanted = replace(SMALL, copies=[(own, "/etc")], commands=commands)
    digests = []
    for each in ("one", "two"):
        (built,) = await build.build(
            wanted, [Format.LXC], tmp_path / each, name="small", epoch=EPOCH
        )
        assert [path.name for path in (tmp_path / each).iterdir()] == ["small.tar.zst"]
        digests.append(built.sha256)
    assert digests[0] == digests[1]
    packed = tmp_path / "one/small.tar.zst"
    assert root_facts(packed, "small", "").format == "tar"
    names = (await process.run(["tar", "--zstd", "-tf", str(packed)])).stdout
    assert "./bin/busybox\n" in names or "./usr/bin/busybox\n" in names
    assert "resolv.conf" not in names
    said = await process.run(["tar", "--zstd", "-xOf", str(packed), "./etc/said", "./etc/it's own"])
    assert said.stdout == "ours751\nagain\n"
    hosts = await process.run(["tar", "--zstd", "-xOf", str(packed), "./etc/hosts"])
    assert hosts.stdout.splitlines()[0] == "127.0.0.1 localhost"


async def test_all_formats_of_a_root_are_the_same_again(tmp_path: Path) -> None:
    tar = tar_of(tmp_path)
    digests = []
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
        built = await build.write(tar, list(Format), tmp_path / each, name="n", epoch=EPOCH)
        digests.append({one.format: one.sha256 for one in built})
        assert {one.format for one in built} == {*Format}
        for one in built:
            assert hashlib.sha256(one.file.read_bytes()).hexdigest() == one.sha256
    assert digests[0] == digests[1]


async def test_a_file_system_has_every_file_with_its_owner_mode_and_capabilities(
    tmp_path: Path,
) -> None:
    (built,) = await build.write(
        tar_of(tmp_path), [Format.EXT4], tmp_path, name="n", epoch=EPOCH, size=64 << 20
    )
    assert built.file.stat().st_size == 64 << 20
    await process.run(["e2fsck", "-fn", str(built.file)], env=ENV)

    async def said(command: str) -> str:
        return (await process.run(["debugfs", "-R", command, str(built.file)], env=ENV)).stdout

    assert await said('cat "/etc/a b/it\'s ""x"""') == "quoted"
    quoted = await said('stat "/etc/a b/it\'s ""x"""')
    assert "Mode:  0600" in quoted
    assert "User:   100   Group:     5" in quoted
    ping = await said("stat /usr/bin/ping")
    assert "Mode:  04755" in ping
    assert "Links: 2" in ping
    assert "security.capability" in ping
    assert await said("cat /usr/bin/ping4") == "ping"
    assert 'Fast link dest: "usr/bin"' in await said("stat /bin")
    assert "null" not in await said("ls /dev")


async def test_a_directory_has_more_links_to_files_than_a_block_has_names(tmp_path: Path) -> None:
    """As those of git and of locales."""
    tar, image = tmp_path / "root.tar", tmp_path / "root.ext4"
    names = {f"{'name' * 20}-{number}" for number in range(200)}
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, kind in {
            "./": tarfile.DIRTYPE,
            "./libexec": tarfile.DIRTYPE,
            "./git": b"0",
        }.items():
            member = tarfile.TarInfo(path)
            member.type, member.mode = kind, 0o755
            archive.addfile(member)
        for name in names:
            member = tarfile.TarInfo(f"./libexec/{name}")
            member.type, member.linkname = tarfile.LNKTYPE, "./git"
            archive.addfile(member)
    await filesystem.make(tar, image, epoch=EPOCH)
    await process.run(["e2fsck", "-fn", str(image)], env=ENV)
    listed = await process.run(["debugfs", "-R", "ls -p /libexec", str(image)], env=ENV)
    assert names == {line.split("/")[5] for line in listed.stdout.splitlines() if "name" in line}


async def test_a_disk_has_a_loader_that_starts_the_newest_kernel(tmp_path: Path) -> None:
    raw = tmp_path / "disk.raw"
    await disk.make(tar_of(tmp_path), raw, epoch=EPOCH)
    listed = (await process.run(["sfdisk", "--json", str(raw)], env=ENV)).stdout
    table = json.loads(listed)["partitiontable"]["partitions"]
    assert [each["name"] for each in table] == ["efi", "root"]
    loader = tmp_path / "loader"
    drive = f"{raw}@@{disk.START}"
    await process.run(["mcopy", "-i", drive, "::/EFI/BOOT/BOOTX64.EFI", str(loader)])
    started = b"linux /boot/vmlinuz-6.1.0-40 root=LABEL=nospoon-root"
    assert started in loader.read_bytes()
    with pytest.raises(ProviderError, match="the root file system has no kernel in /boot"):
        await disk.make(tar_of(tmp_path, kernel=False), raw, epoch=EPOCH)


async def test_a_file_system_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="cannot be filled"):
        await build.write(
            tar_of(tmp_path), [Format.EXT4], tmp_path, name="n", epoch=EPOCH, size=1 << 20
        )


async def test_an_oci_archive_names_its_layer_by_both_digests(tmp_path: Path) -> None:
    tar = tar_of(tmp_path)
    (built,) = await build.write(tar, [Format.OCI], tmp_path, name="n", epoch=EPOCH)
    blobs = dict[str, bytes]()
    with tarfile.open(built.file) as archive:
        for each in archive:
            opened = archive.extractfile(each)
            assert opened is not None
            blobs[each.name] = opened.read()
    for name, content in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"

    def blob(described: dict[str, str]) -> bytes:
        return blobs["blobs/" + described["digest"].replace(":", "/")]

    (listed,) = json.loads(blobs["index.json"])["manifests"]
    manifest = json.loads(blob(listed))
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [
        f"sha256:{hashlib.sha256(tar.read_bytes()).hexdigest()}"
    ]
    assert config["config"]["Cmd"] == ["/sbin/init"]
    (layer,) = manifest["layers"]
    with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz") as unpacked:
        assert "./etc/large" in unpacked.getnames()


def test_a_build_logs_its_commands_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What mmdebstrap is asked for here, it does not know: it ends at once."""
    monkeypatch.delenv("NOSPOON_LOG_LEVEL", raising=False)
    argv = ["image", "build", str(tmp_path / "made"), "--as", "lxc", "--mirror", "nowhere://x"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("nospoon")), *argv],
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"Building with SOURCE_DATE_EPOCH={EPOCH}" in done.stderr
    assert "mmdebstrap" in done.stderr
    assert "[debug" not in done.stdout + done.stderr
    assert list((tmp_path / "made").iterdir()) == []


async def test_an_oci_archive_says_whose_programs_are_in_it(tmp_path: Path) -> None:
    said = {}
    for machine in ("x86_64", "aarch64", "riscv64"):
        oci.make(tar_of(tmp_path), tmp_path / machine, name="n", epoch=EPOCH, machine=machine)
        with tarfile.open(tmp_path / machine) as archive:
            files = [archive.extractfile(each) for each in archive if each.size < 1000]
            texts = [json.loads(each.read()) for each in files if each is not None]
        (said[machine],) = (each["architecture"] for each in texts if "architecture" in each)
    assert said == {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}


def test_a_build_needs_the_tools_of_its_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "mmdebstrap").touch(0o755)
    build.need_tools([Format.OCI], str(tmp_path))
    with pytest.raises(MissingTool, match=r"the build needs zstd\."):
        build.need_tools([Format.OCI, Format.LXC], str(tmp_path))
    with pytest.raises(MissingTool, match=r"the build needs e2fsprogs\."):
        build.need_tools([Format.EXT4], str(tmp_path))
    with pytest.raises(MissingTool, match=r"e2fsprogs fdisk .*mtools qemu-utils\."):
        build.need_tools([Format.QCOW2], str(tmp_path))


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("{file}/images", "--as=oci"), 1, "cannot write images to {file}/images: not a directory"),
        (
            ("{made}", "--as=oci", "--column=digest"),
            2,
            "no column 'digest'; there are file, format",
        ),
    ],
)
def test_a_build_that_cannot_show_or_write_its_images_is_refused_before_it_begins(
    tmp_path: Path, words: tuple[str, ...], status: int, why: str
) -> None:
    file, made = tmp_path / "file", tmp_path / "made"
    file.touch()
    argv = [sys.executable, "-m", "nospoon.cli.main", "image", "build"]
    argv += [each.format(file=file, made=made) for each in words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == status
    assert why.format(file=file) in done.stderr
    assert "Traceback" not in done.stderr
    assert not made.exists()


def test_a_wrong_time_of_the_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("yesterday", "\N{SUPERSCRIPT TWO}", "99999999999"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(UsageError, match="expected seconds since 1970"):
            image._epoch()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert str(image._epoch()) == os.environ["SOURCE_DATE_EPOCH"]
    with pytest.raises(UsageError, match="--size: expected a size such as 8GiB, got '8'"):
        image._bytes("8")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("setup", "expected FILE:DIRECTORY"),
        ("a:b", "expected FILE:DIRECTORY"),
        ("nowhere:/usr", "is not a file"),
    ],
)
def test_a_wrong_copy_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        image._copy(text)


def test_a_build_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    """mmdebstrap was killed while it cleaned up: its root, with mounts, and its children stayed."""
    work, images = tmp_path / "work", tmp_path / "images"
    work.mkdir()
    work.chmod(0o755)
    command = [sys.executable, "-m", "nospoon.cli.main", "image", "build", str(images), "--as=lxc"]
    with subprocess.Popen(
        ["env", "--default-signal=INT", *command], env={**os.environ, "TMPDIR": str(work)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as running:  # fmt: skip
        until(lambda: any(work.glob("mmdebstrap.*/var/lib/apt/lists/*_Packages")), 300)
        os.kill(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=240)
    assert running.returncode == 130, said
    assert "Interrupted: removing what was made so far" in said
    assert said.rstrip().endswith("Aborted.")
    assert "Traceback" not in said
    assert not [*work.iterdir(), *images.iterdir()]
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
