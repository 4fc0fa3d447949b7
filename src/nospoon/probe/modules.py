"""Which kernel modules the probe carries, and the indices that modprobe reads.

PURE. Module files carry NUL-separated `key=value` strings in their section .modinfo; "depends" and
"alias" are the two that make modules.dep and modules.alias (modprobe(8), depmod(8)). Debian makes
those indices at installation, so the package doesn't have them and we write our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WANTED = (
    # buses and disks
    *("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_scsi", "sd_mod", "sr_mod"),
    *("ahci", "ata_piix", "nvme"),
    # NICs that QEMU and its relatives offer
    *("virtio_net", "e1000", "e1000e", "8139cp", "pcnet32", "vmxnet3", "ne2k_pci"),
    # buttons, entropy, firmware
    *("button", "evdev", "gpio_keys", "virtio_rng", "efivarfs", "af_packet"),
)
"""Modules by name; those that a kernel has built in or doesn't know are left out."""

_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_ALIAS = re.compile(rb"\0alias=([^\0]*)(?=\0)")


@dataclass(frozen=True, slots=True)
class Module:
    """One module file: `path` relative to the kernel's module directory."""

    name: str
    path: str
    depends: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def module_name(path: str) -> str:
    """The name by which the kernel knows the module in this file."""
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def parse(path: str, content: bytes) -> Module:
    """Read what a module file says about itself."""
    depends = _DEPENDS.search(content)
    names = depends.group(1).decode().split(",") if depends else []
    aliases = tuple(sorted({found.decode() for found in _ALIAS.findall(content)}))
    return Module(
        name=module_name(path),
        path=path,
        depends=tuple(name.replace("-", "_") for name in names if name),
        aliases=aliases,
    )


def closure(wanted: Iterable[str], known: Mapping[str, Module]) -> tuple[Module, ...]:
    """The wanted modules that exist and all that they need, each after what it needs."""
    found: dict[str, Module] = {}

    def visit(name: str) -> None:
        module = known.get(name)
        if module is None or name in found:
            return
        for need in module.depends:
            visit(need)
        found[name] = module

    for name in wanted:
        visit(name)
    return tuple(found.values())


def modules_dep(modules: Iterable[Module]) -> str:
    """modules.dep: a file and, nearest first, every file that must be loaded before it."""
    known = {module.name: module for module in modules}
    return "".join(
        f"{module.path}:{''.join(' ' + path for path in _needs(module, known))}\n"
        for module in known.values()
    )


def _needs(module: Module, known: Mapping[str, Module]) -> list[str]:
    return [need.path for need in reversed(closure(module.depends, known))]


def modules_alias(modules: Iterable[Module]) -> str:
    """modules.alias: which module drives a device whose modalias matches the pattern."""
    return "".join(
        f"alias {alias} {module.name}\n" for module in modules for alias in module.aliases
    )
