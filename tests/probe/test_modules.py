"""Reading of module files and the indices made of them."""

from __future__ import annotations

from nospoon.probe import modules


def module_file(*, depends: str, aliases: tuple[str, ...] = ()) -> bytes:
    strings = [f"alias={alias}" for alias in aliases] + [f"depends={depends}", "retpoline=Y"]
    return b"\x7fELF\0\0junk\0" + b"".join(text.encode() + b"\0" for text in strings) + b"\0junk"


DISK = modules.parse(
    "drivers/virtio-blk.ko",
    module_file(depends="virtio,virtio-ring", aliases=("virtio:d00000002v*", "virtio:d0000000Av*")),
)
KNOWN = {
    "virtio_blk": DISK,
    "virtio": modules.Module("virtio", "drivers/virtio.ko", depends=("virtio_ring",)),
    "virtio_ring": modules.Module("virtio_ring", "drivers/virtio_ring.ko"),
    "e1000": modules.Module("e1000", "net/e1000.ko"),
}


def test_a_module_file_tells_its_name_needs_and_aliases() -> None:
    assert (
        modules.Module(
            name="virtio_blk",
            path="drivers/virtio-blk.ko",
            depends=("virtio", "virtio_ring"),
            aliases=("virtio:d00000002v*", "virtio:d0000000Av*"),
        )
        == DISK
    )


def test_a_file_without_module_information_needs_nothing() -> None:
    assert modules.parse("x.ko", b"garbage") == modules.Module("x", "x.ko")


def test_needs_come_first_and_once_and_the_unknown_is_left_out() -> None:
    chosen = modules.closure(["virtio_blk", "virtio", "builtin"], KNOWN)
    assert [module.name for module in chosen] == ["virtio_ring", "virtio", "virtio_blk"]


def test_modules_dep_lists_what_to_load_nearest_first() -> None:
    text = modules.modules_dep(modules.closure(["virtio_blk"], KNOWN))
    assert text.splitlines() == [
        "drivers/virtio_ring.ko:",
        "drivers/virtio.ko: drivers/virtio_ring.ko",
        "drivers/virtio-blk.ko: drivers/virtio.ko drivers/virtio_ring.ko",
    ]


def test_modules_alias_maps_patterns_to_modules() -> None:
    assert modules.modules_alias([DISK]).splitlines() == [
        "alias virtio:d00000002v* virtio_blk",
        "alias virtio:d0000000Av* virtio_blk",
    ]
