"""Secure boot's databases among a machine's UEFI variables (UEFI 2.10 §32.4.1).

list        GUID of the signatures' type, u32 size of the list (with this header), u32 size of
            the type's own header, u32 size of each signature
  header    of the type's own size; no type that UEFI names has one
  signature GUID of its owner, data; as many as fit
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from uuid import UUID

from nospoon.model.secure_boot import KeyDatabase, Signature
from nospoon.providers.libvirt.varstore import (
    GLOBAL,
    BadVariables,
    Variable,
    variables,
    with_variable,
    without_variable,
)

IMAGE_SECURITY = UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
"""EFI_IMAGE_SECURITY_DATABASE_GUID (§32.6.1)."""
DATABASES: Mapping[str, UUID] = {
    "PK": GLOBAL,
    "KEK": GLOBAL,
    "db": IMAGE_SECURITY,
    "dbx": IMAGE_SECURITY,
}
"""Variable -> its vendor."""
KINDS: Mapping[UUID, str] = {
    UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072"): "EFI_CERT_X509_GUID",
    UUID("c1c41626-504c-4092-aca9-41f936934328"): "EFI_CERT_SHA256_GUID",
    UUID("ff3e5307-9fd0-48c9-85f1-8ad56c701e01"): "EFI_CERT_SHA384_GUID",
    UUID("093e0fae-a6c4-4f50-9f1b-d41e2b89c19a"): "EFI_CERT_SHA512_GUID",
    UUID("826ca512-cf10-4ac9-b187-be01496631bd"): "EFI_CERT_SHA1_GUID",
    UUID("3c5766e8-269c-4e34-aa14-ed776e85b3b6"): "EFI_CERT_RSA2048_GUID",
    UUID("3bd2a492-96c0-4079-b420-fcf98ef103ed"): "EFI_CERT_X509_SHA256_GUID",
    UUID("7076876e-80c2-4ee6-aad2-28b349a6865b"): "EFI_CERT_X509_SHA384_GUID",
    UUID("446dbf63-2502-4cda-bcfa-2465d2b0fe9d"): "EFI_CERT_X509_SHA512_GUID",
    UUID("4aafd29d-68df-49ee-8aa9-347d375665a7"): "EFI_CERT_TYPE_PKCS7_GUID",
}
_LIST = struct.Struct("<16sLLL")
_OWNER = 16
MOST = 4096
"""Signatures of one database: Microsoft's dbx has some 500. The guest writes as many as fit."""


def key_databases(flash: bytes) -> tuple[KeyDatabase, ...]:
    """All four, in UEFI's order; one that nothing is enrolled in is empty.

    Raises `BadVariables`.
    """
    found = {(each.name, each.vendor): each.data for each in variables(flash)}
    return tuple(
        KeyDatabase(name, tuple(signatures(found.get((name, vendor), b""))))
        for name, vendor in DATABASES.items()
    )


def signatures(data: bytes) -> Iterator[Signature]:
    """What is in one database. Raises `BadVariables`."""
    place = count = 0
    while place < len(data):
        try:
            guid, size, header, each = _LIST.unpack_from(data, place)
        except struct.error:
            raise BadVariables(f"the signature list at {place} does not end") from None
        first, end = place + _LIST.size + header, place + size
        if not (first <= end <= len(data) and each >= _OWNER and (end - first) % each == 0):
            raise BadVariables(f"the signature list at {place} contradicts itself")
        count += (end - first) // each
        if count > MOST:
            raise BadVariables(f"it has a database of more than {MOST} signatures")
        kind = UUID(bytes_le=guid)
        for at in range(first, end, each):
            owner = UUID(bytes_le=data[at : at + _OWNER])
            yield Signature(KINDS.get(kind, str(kind)), owner, data[at + _OWNER : at + each])
        place = end


def with_keys_of(flash: bytes, template: bytes) -> bytes:
    """The same flash with the template's databases. Raises `BadVariables`."""
    made = {(each.name, each.vendor): each for each in variables(template)}
    for key in DATABASES.items():
        found: Variable | None = made.get(key)
        flash = without_variable(flash, *key) if found is None else with_variable(flash, found)
    return flash
