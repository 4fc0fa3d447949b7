"""Secure boot's databases: those of Debian's firmware, as virt-firmware reads them, and garbage."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virt.firmware.varstore.edk2 import Edk2VarStore

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.model.secure_boot import KeyDatabase, Signature
from nospoon.providers.libvirt.flash import WHOLE, Flash
from nospoon.providers.libvirt.key_databases import (
    DATABASES,
    key_databases,
    signatures,
    with_keys_of,
)
from nospoon.providers.libvirt.nvram import AGAIN, Nvram, Place
from nospoon.providers.libvirt.varstore import (
    GLOBAL,
    LARGEST,
    BadVariables,
    Variable,
    variables,
    with_variable,
)
from nospoon.runtime.process import Finished

EMPTY, MICROSOFT = (
    Path(f"/usr/share/OVMF/OVMF_VARS_4M{each}.fd").read_bytes()[:LARGEST] for each in ("", ".ms")
)


def test_the_databases_of_a_template_are_read_as_virt_firmware_reads_them(tmp_path: Path) -> None:
    flash = tmp_path / "vars.fd"
    flash.write_bytes(MICROSOFT)
    theirs = Edk2VarStore(str(flash)).get_varlist()
    for database in key_databases(MICROSOFT):
        told = [
            (str(each["guid"]), bytes(each["data"]))
            for found in theirs[database.name].sigdb
            for each in found
        ]
        assert [(str(each.owner), each.data) for each in database.signatures] == told
    kinds = {each.name: {s.kind for s in each.signatures} for each in key_databases(MICROSOFT)}
    assert kinds["db"] == {"EFI_CERT_X509_GUID"}
    assert kinds["dbx"] == {"EFI_CERT_SHA256_GUID"}


def test_firmware_without_keys_has_empty_databases() -> None:
    assert key_databases(EMPTY) == tuple(map(KeyDatabase, DATABASES))


def test_keys_are_put_back_and_all_else_stays() -> None:
    other = Variable("BootNext", GLOBAL, b"\1\0")
    changed = with_variable(with_keys_of(MICROSOFT, EMPTY), other)
    assert key_databases(changed) == key_databases(EMPTY)
    back = with_keys_of(changed, MICROSOFT)
    assert key_databases(back) == key_databases(MICROSOFT)
    assert other in variables(back)


def test_a_type_that_uefi_does_not_name_is_told_by_its_guid() -> None:
    kind, owner = UUID(int=7), UUID(int=8)
    head = kind.bytes_le + (28 + 17).to_bytes(4, "little") + bytes(4) + (17).to_bytes(4, "little")
    assert list(signatures(head + owner.bytes_le + b"x")) == [Signature(str(kind), owner, b"x")]


@pytest.mark.parametrize("size", [0, 27, 46, 0xFFFFFFFF])
def test_a_list_of_an_impossible_size_is_refused(size: int) -> None:
    head = bytes(16) + size.to_bytes(4, "little") + bytes(4) + (17).to_bytes(4, "little")
    with pytest.raises(BadVariables):
        list(signatures(head + bytes(17)))


@given(st.binary(max_size=200))
def test_garbage_is_read_or_refused_and_nothing_else(data: bytes) -> None:
    try:
        found = list(signatures(data))
    except BadVariables:
        return
    assert bool(found) <= bool(data)


class Written:
    """A hypervisor whose firmware is writing the file at the first looks."""

    def __init__(self, *said: Exception) -> None:
        self.said = list(said)

    async def ask(self, work: object, what: str) -> Place:
        del work, what
        if self.said:
            raise self.said.pop(0)
        return Place(cast("Any", None), "/pool", "/pool/nvram/f", "/pool/nvram/f")

    async def run(self, argv: Sequence[str], **_: object) -> Finished:
        return Finished(tuple(argv), 0, b64encode(MICROSOFT).decode(), f"{WHOLE}\n")


def nvram(host: Written) -> Nvram:
    flash = Flash("here", cast("Any", host))
    return Nvram(cast("Any", host), cast("Any", None), flash, cast("Any", None))


async def test_what_a_firmware_is_writing_is_read_again() -> None:
    broken = ProviderError("UEFI variables: no end")
    assert await nvram(Written(broken, broken)).key_databases(uuid4()) == key_databases(MICROSOFT)
    with pytest.raises(ProviderError, match="no end"):
        await nvram(Written(*[broken] * (len(AGAIN) + 1))).key_databases(uuid4())
    away = Written(HostUnreachable("away"), broken)
    with pytest.raises(HostUnreachable):
        await nvram(away).key_databases(uuid4())
    assert away.said == [broken], "nothing is asked twice of a host that is away"


class Held(Written):
    """A host that shows the file of the first machine when it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.began, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def run(self, argv: Sequence[str], **given: object) -> Finished:
        self.asked += 1
        if self.asked == 1:
            self.began.set()
            await self.go_on.wait()
        return await super().run(argv, **given)


async def test_keys_of_one_machine_are_read_once_at_a_time_and_hold_up_no_other() -> None:
    """A client of one BMC kept those of all other machines of the host waiting."""
    host, slow = Held(), uuid4()
    read = nvram(host)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(read.key_databases(slow))
        await host.began.wait()
        second = group.create_task(read.key_databases(slow))
        assert await read.key_databases(uuid4()) == key_databases(MICROSOFT)
        assert host.asked == 2
        assert not first.done()
        assert not second.done()
        host.go_on.set()
    assert first.result() == second.result() == key_databases(MICROSOFT)
