"""Roots of containers: a Debian with systemd, cloud-init and sshd, and one of busybox alone.

Debian's is kept in a cache by a key of what it is made of: mmdebstrap takes a minute and more.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

from nospoon.runtime import process
from nospoon.testing.alone import alone

PACKAGES = ("systemd-sysv", "dbus", "cloud-init", "openssh-server", "iproute2")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/var/lib/apt/lists/*")
LONGEST = 900.0
"""Seconds for a slow mirror."""
SETTINGS = "{datasource_list: [NoCloud, None], locale: false}"
HOOKS = (
    f"echo '{SETTINGS}' >\"$1/etc/cloud/cloud.cfg.d/90_container.cfg\"",
    'chroot "$1" systemctl enable systemd-networkd',
    'chroot "$1" systemctl mask systemd-networkd-wait-online sys-kernel-debug.mount',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/resolv.conf"',
)
SAYS = "container: init runs"
INIT = f"""\
#!/bin/busybox sh
echo '{SAYS}'
trap 'echo container: ends; exit 0' PWR
while :; do /bin/busybox sleep 1 & wait $!; echo container: goes on; done
"""


async def debian_root(cache: Path) -> Path:
    """A tar, made when it is not there. Raises `MissingTool` or `ProviderError`."""
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += [f"--dpkgopt=path-exclude={each}" for each in LEFT_OUT]
    argv += ["--dpkgopt=force-unsafe-io"]
    argv += [f"--customize-hook={each}" for each in HOOKS]
    key = hashlib.sha256("\0".join(argv).encode()).hexdigest()[:16]
    made = cache / f"container-root-{key}.tar.zst"
    with alone(made.name, patience=LONGEST):  # tests of several workers begin with it
        if made.exists():
            return made
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as work:
            root = Path(work) / "root.tar.zst"
            await process.run([*argv, "bookworm", str(root)], timeout=LONGEST)
            root.replace(made)
    return made


def busybox_root(*, init: str = INIT) -> bytes:
    """A tar of a container that says that it runs, and ends when it is to."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("bin", "sbin", "dev", "proc", "sys", "run", "tmp", "etc", "var"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
        for name, content in (
            ("bin/busybox", Path("/bin/busybox").read_bytes()),
            ("sbin/init", init.encode()),
        ):
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(content), 0o755
            archive.addfile(file, io.BytesIO(content))
    return written.getvalue()


__all__ = ["INIT", "SAYS", "busybox_root", "debian_root"]
