"""UEFI variable stores: those of Debian's firmware, as virt-firmware reads them, and garbage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virt.firmware.varstore.edk2 import Edk2VarStore

from nospoon.providers.libvirt.varstore import (
    GLOBAL,
    LARGEST,
    BadVariables,
    Variable,
    entering_setup,
    variables,
    with_secure_boot,
    with_variable,
)

TEMPLATES = (
    Path("/usr/share/OVMF/OVMF_VARS_4M.fd"),
    Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
)
HEADERS = 0x64
"""Bytes of both headers in Debian's templates."""


def template(path: Path) -> bytes:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path.read_bytes()[:LARGEST]


def read_by_virt_firmware(flash: bytes, place: Path) -> dict[str, bytes]:
    place.write_bytes(flash)
    found = Edk2VarStore(str(place)).get_varlist()
    return {name: bytes(each.data) for name, each in found.items()}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_firmware_templates_are_read_as_virt_firmware_reads_them(
    path: Path, tmp_path: Path
) -> None:
    flash = template(path)
    ours = {each.name: each.data for each in variables(flash)}
    assert ours == read_by_virt_firmware(flash, tmp_path / "vars.fd")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_what_is_written_virt_firmware_reads_beside_all_the_rest(
    path: Path, tmp_path: Path
) -> None:
    flash = template(path)
    before = read_by_virt_firmware(flash, tmp_path / "before.fd")
    changed = with_secure_boot(entering_setup(flash), enabled=False)
    assert len(changed) == len(flash)
    after = read_by_virt_firmware(changed, tmp_path / "after.fd")
    expected = {"OsIndications": b"\1" + bytes(7), "SecureBootEnable": b"\0"}
    assert after == {**before, **expected}


def test_secure_boot_that_is_so_already_changes_nothing() -> None:
    flash = with_secure_boot(template(TEMPLATES[1]), enabled=True)
    assert with_secure_boot(flash, enabled=True) == flash


def test_other_indications_stay() -> None:
    flash = template(TEMPLATES[0])
    asked = with_variable(flash, Variable("OsIndications", GLOBAL, b"\x04" + bytes(7)))
    (found,) = (v for v in variables(entering_setup(asked)) if v.name == "OsIndications")
    assert found.data == b"\x05" + bytes(7)


def test_a_name_that_is_not_text_is_refused() -> None:
    """A guest without secure boot writes each byte of its store."""
    begun = with_secure_boot(template(TEMPLATES[0]), enabled=True)
    at = begun.index("SecureBootEnable\0".encode("utf-16-le")) - 24
    damaged = begun[:at] + struct.pack("<L", 3) + begun[at + 4 :]
    with pytest.raises(BadVariables, match="is not text"):
        variables(damaged)


def test_a_store_that_is_full_is_refused() -> None:
    with pytest.raises(BadVariables, match="the variables take"):
        with_variable(template(TEMPLATES[0]), Variable("Big", GLOBAL, bytes(1 << 18)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda flash: flash[:50], "too few"),
        (lambda flash: bytes(len(flash)), "no variables yet"),
        (lambda flash: b"\x01" + bytes(len(flash)), "not a firmware volume"),
        (lambda flash: flash[:40] + b"_XXX" + flash[44:], "not a firmware volume"),
        (lambda flash: flash[:0x48] + bytes(16) + flash[0x58:], "not a store"),
        (lambda flash: flash[:0x58] + b"\xff\xff\xff\x7f" + flash[0x5C:], "says that it has"),
    ],
)
def test_what_is_no_store_is_refused(change: object, why: str) -> None:
    assert callable(change)
    with pytest.raises(BadVariables, match=why):
        variables(change(template(TEMPLATES[1])))


@given(st.binary(max_size=300))
def test_garbage_for_variables_is_read_or_refused(garbage: bytes) -> None:
    flash = template(TEMPLATES[0])
    marked = struct.pack("<H", 0x55AA) + garbage
    damaged = flash[:HEADERS] + marked + flash[HEADERS + len(marked) :]
    try:
        variables(damaged)
    except BadVariables:
        return


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(BadVariables):
        variables(garbage)


names = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(st.dictionaries(names, st.binary(max_size=50), max_size=8))
def test_what_is_written_is_read(wanted: dict[str, bytes]) -> None:
    flash = template(TEMPLATES[0])
    for name, data in wanted.items():
        flash = with_variable(flash, Variable(name, GLOBAL, data))
    found = {each.name: each.data for each in variables(flash)}
    assert {name: found[name] for name in wanted} == wanted
