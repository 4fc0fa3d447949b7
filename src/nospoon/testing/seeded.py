"""A small Linux that does what cloud-init does first: it finds its seed by the label, of NoCloud or
of a config drive, and runs the user data.

Its image boots by UEFI: GRUB, and the probe's kernel and ramdisk with another `init` and the file
system of CDs. It is kept in a cache by a key of what it is made of.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from nospoon.model.cluster import Arch
from nospoon.probe import build, cpio, modules
from nospoon.probe.packages import find_sources, unpack
from nospoon.services.netboot import disk_image
from nospoon.services.netboot.iso import make_loader

MORE = ("isofs",)
"""Modules besides those of the probe."""
CONFIG = """\
search --no-floppy --file /nospoon/vmlinuz --set=root
linux /nospoon/vmlinuz console=ttyS0,115200 quiet panic=10
initrd /nospoon/initrd /nospoon/more
boot
"""
READY = "guest: ready"
INIT = """\
#!/bin/sh
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /seed
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
echo 1 >/proc/sys/kernel/printk
for pass in 1 2 3; do
    modprobe -abq $(cat /sys/bus/*/devices/*/modalias) 2>/dev/null
done
modprobe -abq sd_mod sr_mod isofs 2>/dev/null
pass=0
while [ $((pass += 1)) -lt 200 ]; do
    for disk in /dev/sr*; do
        # the volume identifier of the primary descriptor (ECMA-119, 8.4.7)
        label=$(dd if=$disk bs=8 skip=4101 count=4 2>/dev/null)
        case ${label%% *} in cidata | config-2) break 2 ;; esac
    done
    usleep 200000
done
echo "guest: label ${label%% *} on $disk"
mount -t iso9660 -o ro $disk /seed
for file in /seed/*; do
    [ -f "$file" ] || continue
    echo "guest: file ${file##*/} $(sha256sum <$file)"
done
data=/seed/user-data
[ -e $data ] || data=/seed/openstack/latest/user_data
read -r first <$data
case $first in '#!'*) sh $data ;; esac
echo 'guest: ready'
while :; do setsid cttyhack sh; done
"""


async def seeded_image(cache: Path) -> Path:
    """The image, raw, made when it is not there. Raises `MissingTool` or `ProviderError`."""
    probe = await build.build(cache)
    texts = (CONFIG, INIT, str(probe.initrd.parent.name), *disk_image.MODULES, *MORE)
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    image = cache / f"seeded-image-{key}.raw"
    if image.exists():
        return image
    with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
        work = Path(made)
        (work / "more").write_bytes(build.compress(cpio.archive(await _more(cache, work))))
        loader = await make_loader(work, CONFIG, disk_image.MODULES)
        files = {"EFI/BOOT/BOOTX64.EFI": loader, "nospoon/vmlinuz": probe.kernel,
                 "nospoon/initrd": probe.initrd, "nospoon/more": work / "more"}  # fmt: skip
        await disk_image.partitioned(work / "image", files)
        (work / "image").replace(image)
    return image


async def _more(cache: Path, work: Path) -> list[cpio.Entry]:
    """What is in it besides, or in place of, what the probe has."""
    sources = await find_sources(Arch.X86_64, directory=cache / f"apt-{Arch.X86_64}")
    await unpack(await sources.apt.download(sources.kernel, work), work / "root")
    (base,) = (work / "root/lib/modules").iterdir()
    found = build.chosen(base, (*modules.WANTED, *MORE))
    place = f"lib/modules/{base.name}"
    return [
        cpio.file("init", INIT.encode(), mode=0o755),
        cpio.file(f"{place}/modules.dep", modules.modules_dep(found).encode()),
        cpio.file(f"{place}/modules.alias", modules.modules_alias(found).encode()),
        *(
            cpio.file(f"{place}/{each.path}", (base / each.path).read_bytes())
            for each in found
            if each.name in {*MORE, "cdrom"}
        ),
    ]
