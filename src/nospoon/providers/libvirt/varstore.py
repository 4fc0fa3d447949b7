"""UEFI variables as edk2 keeps them in flash, read and written while the machine is off.

The file begins with a firmware volume (UEFI PI 1.7 vol. 3 §3.2.1), in it the variable store
(edk2, MdeModulePkg/Include/Guid/VariableFormat.h, authenticated variables):

    volume header   length at 32, signature "_FVH" at 40, header length at 48
    store header    GUID, u32 size (with this header), u8 format 5Ah, u8 state FEh, 6 reserved
    variables       one after the other, each on 4 bytes; the rest is FFh
      header        u16 55AAh, u8 state, u8 0, u32 attributes, u64 count, 16 time, u32 key,
                    u32 bytes of name, u32 bytes of data, 16 GUID of the vendor
      name          UTF-16LE with its zero
      data

Debian's template for ARM is empty: there the firmware makes the store when it boots first.

What follows the store, where the firmware records writes under way, is left as it is. Writing packs
the store: deleted variables go.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

_VOLUME = struct.Struct("<16x16xQ4sLH")
_STORE = struct.Struct("<16sLBB6x")
_VARIABLE = struct.Struct("<HBxLQ16sLLL16s")
NV_DATA = UUID("fff12b8d-7696-4c8b-a985-2747075b4f50")
AUTHENTICATED = UUID("aaf32c78-947b-439a-a180-2e144ec37792")
GLOBAL = UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")
"""EFI_GLOBAL_VARIABLE (UEFI 2.10 §3.3)."""
SECURE_BOOT_ENABLE = UUID("f0a30bc7-af08-4556-99c4-001009c93a44")
"""gEfiSecureBootEnableDisableGuid, of edk2's SecurityPkg."""
NON_VOLATILE, BOOT, RUNTIME = 0x1, 0x2, 0x4
TO_FIRMWARE_UI = 0x1
"""EFI_OS_INDICATIONS_BOOT_TO_FW_UI (UEFI 2.10 §8.5.4)."""
_START, _ADDED, _BEING_REPLACED = 0x55AA, 0x3F, 0x3E
_VALID = (0x5A, 0xFE)
LARGEST = 1 << 20
"""So many bytes of the file hold the volume's and the store's headers and all variables."""


class BadVariables(ValueError):
    """These bytes are no variable store of edk2, or it is full."""


class NotBegun(BadVariables):
    """The firmware has not made its variable store yet."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`time`: 16 bytes (EFI_TIME) of the last authenticated write; `key` and `count` as stored."""

    name: str
    vendor: UUID
    data: bytes
    attributes: int = NON_VOLATILE | BOOT | RUNTIME
    count: int = 0
    time: bytes = bytes(16)
    key: int = 0


def variables(flash: bytes) -> tuple[Variable, ...]:
    """All that the store holds, in its order. Raises `BadVariables`."""
    begin, end = _bounds(flash)
    found: dict[tuple[str, UUID], Variable] = {}
    for state, each in _walk(flash, begin, end):
        if state == _ADDED or (state == _BEING_REPLACED and (each.name, each.vendor) not in found):
            found[each.name, each.vendor] = each
    return tuple(found.values())


def with_variable(flash: bytes, variable: Variable) -> bytes:
    """The same flash with this variable, instead of the one of that name and vendor.

    Raises `BadVariables` also when there is no room.
    """
    return _with(flash, [*_others(flash, variable.name, variable.vendor), variable])


def without_variable(flash: bytes, name: str, vendor: UUID) -> bytes:
    """The same flash without this variable. Raises `BadVariables`."""
    return _with(flash, _others(flash, name, vendor))


def _others(flash: bytes, name: str, vendor: UUID) -> list[Variable]:
    return [each for each in variables(flash) if (each.name, each.vendor) != (name, vendor)]


def _with(flash: bytes, kept: list[Variable]) -> bytes:
    begin, end = _bounds(flash)
    together = b"".join(map(packed, kept))
    if len(together) > end - begin:
        raise BadVariables(f"the store has {end - begin} bytes, the variables take {len(together)}")
    return flash[:begin] + together.ljust(end - begin, b"\xff") + flash[end:]


def entering_setup(flash: bytes) -> bytes:
    """The next boot enters the firmware's setup; the firmware itself takes the bit back."""
    before = _find(flash, "OsIndications", GLOBAL) or Variable("OsIndications", GLOBAL, bytes(8))
    bits = int.from_bytes(before.data[:8], "little") | TO_FIRMWARE_UI
    return with_variable(flash, replace(before, data=bits.to_bytes(8, "little")))


def with_secure_boot(flash: bytes, *, enabled: bool) -> bytes:
    """Whether the next boot checks signatures, where keys are enrolled."""
    attributes = NON_VOLATILE | BOOT
    switch = Variable("SecureBootEnable", SECURE_BOOT_ENABLE, bytes([enabled]), attributes)
    before = _find(flash, switch.name, switch.vendor)
    return flash if before == switch else with_variable(flash, switch)


def _find(flash: bytes, name: str, vendor: UUID) -> Variable | None:
    return next((v for v in variables(flash) if (v.name, v.vendor) == (name, vendor)), None)


def _bounds(flash: bytes) -> tuple[int, int]:
    """Where variables begin, and where the store ends."""
    if flash and not any(flash[: _VOLUME.size]):
        raise NotBegun("the firmware has written no variables yet")
    try:
        _, signature, _, length = _VOLUME.unpack_from(flash)
        guid, size, form, state = _STORE.unpack_from(flash, length)
    except struct.error:
        raise BadVariables("these are too few bytes for a variable store") from None
    if (flash[16:32], signature) != (NV_DATA.bytes_le, b"_FVH"):
        raise BadVariables("this is not a firmware volume with variables")
    if (guid, form, state) != (AUTHENTICATED.bytes_le, *_VALID):
        raise BadVariables("this is not a store of authenticated variables")
    if not _STORE.size <= size <= len(flash) - length:
        raise BadVariables(f"the store says that it has {size} bytes")
    return length + _STORE.size, length + size


def _walk(flash: bytes, begin: int, end: int) -> Iterator[tuple[int, Variable]]:
    place = begin
    while place + _VARIABLE.size <= end:
        start, state, attributes, count, time, key, named, sized, vendor = _VARIABLE.unpack_from(
            flash, place
        )
        if start != _START:
            return
        name = place + _VARIABLE.size
        data, after = name + named, name + named + sized
        if after > end:
            raise BadVariables(f"the variable at {place:#x} does not end")
        try:
            text = flash[name:data].decode("utf-16-le", "surrogatepass").removesuffix("\0")
        except UnicodeDecodeError:
            raise BadVariables(f"the name of the variable at {place:#x} is not text") from None
        yield (
            state,
            Variable(text, UUID(bytes_le=vendor), flash[data:after], attributes, count, time, key),
        )
        place = (after + 3) & ~3


def packed(variable: Variable) -> bytes:
    """As it stands in a store, filled up to 4 bytes."""
    name = f"{variable.name}\0".encode("utf-16-le", "surrogatepass")
    header = _VARIABLE.pack(
        _START,
        _ADDED,
        variable.attributes,
        variable.count,
        variable.time,
        variable.key,
        len(name),
        len(variable.data),
        variable.vendor.bytes_le,
    )
    whole = header + name + variable.data
    return whole + b"\xff" * (-len(whole) % 4)


def unpacked(data: bytes) -> Variable:
    """What `packed` made. Raises `BadVariables`."""
    for _, variable in _walk(data, 0, len(data)):
        return variable
    raise BadVariables("these bytes have no variable at their beginning")
