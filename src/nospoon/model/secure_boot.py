"""What firmware trusts: the databases of secure boot (UEFI 2.10 §32.4)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Signature:
    """One entry. `kind`: UEFI's name of its type ("EFI_CERT_X509_GUID", whose `data` is a DER
    certificate), or the GUID of one that UEFI does not name. `owner`: who put it there.
    """

    kind: str
    owner: UUID
    data: bytes


@dataclass(frozen=True, slots=True)
class KeyDatabase:
    """`name` as UEFI calls the variable: PK, KEK, db or dbx."""

    name: str
    signatures: tuple[Signature, ...] = ()
