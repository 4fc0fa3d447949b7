"""SecureBootDatabases (DSP0268): what the firmware of a UEFI machine trusts, and what it does not.

They are read from the machine's own variables, whenever someone asks. Where these are not known,
because there is no firmware behind the machine or it never started, no database is shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography import x509
from starlette.responses import Response

from nospoon.errors import NospoonError
from nospoon.model.secure_boot import KeyDatabase, Signature
from nospoon.services.bmcs.redfish.http.answers import tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import collection, ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.certificate_service import certificate
from nospoon.services.bmcs.redfish.resources.secure_boot import has_secure_boot

X509 = "EFI_CERT_X509_GUID"
DATABASES = "SecureBootDatabases"
Entry = x509.Certificate | None
"""A signature that is a certificate, None for any other."""


async def _databases(exchange: Exchange) -> tuple[str, Mapping[str, KeyDatabase]]:
    """The path of the collection, and its members by id."""
    served = exchange.served()
    if not has_secure_boot(served):
        raise errors.not_found(exchange.path)
    try:
        found = await exchange.service.machines.key_databases(served.bmc.uuid)
    except NospoonError as error:
        raise errors.of(error) from None
    return f"Systems/{served.bmc.uuid}/SecureBoot/{DATABASES}", {each.name: each for each in found}


async def _list(exchange: Exchange) -> Response:
    path, found = await _databases(exchange)
    return tagged(exchange, collection("SecureBootDatabase", path, found))


async def _database(exchange: Exchange) -> tuple[str, KeyDatabase]:
    path, found = await _databases(exchange)
    wanted = exchange.request.path_params["database"]
    if wanted not in found:
        raise errors.not_found(exchange.path)
    return f"{path}/{wanted}", found[wanted]


async def _get(exchange: Exchange) -> Response:
    path, database = await _database(exchange)
    body = {
        **resource("SecureBootDatabase", path, database.name, f"{database.name} Database"),
        "DatabaseId": database.name,
        "Certificates": ref(f"{path}/Certificates"),
        "Signatures": ref(f"{path}/Signatures"),
    }
    return tagged(exchange, body)


def _read(signature: Signature) -> Entry:
    """What says that it is a certificate and cannot be read as one is shown as it is."""
    if signature.kind != X509:
        return None
    try:
        return x509.load_der_x509_certificate(signature.data)
    except ValueError:
        return None


def _entries(database: KeyDatabase) -> list[tuple[str, Signature, Entry]]:
    """With their ids: places in the database, from 1 on."""
    return [(str(n), each, _read(each)) for n, each in enumerate(database.signatures, 1)]


async def _certificates(exchange: Exchange) -> Response:
    path, database = await _database(exchange)
    ids = [id_ for id_, _, found in _entries(database) if found is not None]
    return tagged(exchange, collection("Certificate", f"{path}/Certificates", ids))


async def _signatures(exchange: Exchange) -> Response:
    path, database = await _database(exchange)
    ids = [id_ for id_, _, found in _entries(database) if found is None]
    return tagged(exchange, collection("Signature", f"{path}/Signatures", ids))


async def _certificate(exchange: Exchange) -> Response:
    path, database = await _database(exchange)
    for id_, signature, found in _entries(database):
        if id_ == exchange.request.path_params["member"] and found is not None:
            shown = certificate(f"{path}/Certificates/{id_}", id_, [found], usage="BIOS")
            return tagged(exchange, {**shown, "UefiSignatureOwner": str(signature.owner)})
    raise errors.not_found(exchange.path)


async def _signature(exchange: Exchange) -> Response:
    path, database = await _database(exchange)
    for id_, signature, found in _entries(database):
        if id_ == exchange.request.path_params["member"] and found is None:
            return tagged(exchange, _shown(f"{path}/Signatures/{id_}", id_, signature))
    raise errors.not_found(exchange.path)


def _shown(path: str, id_: str, signature: Signature) -> dict[str, object]:
    return {
        **resource("Signature", path, id_, f"Signature {id_}"),
        "SignatureTypeRegistry": "UEFI",
        "SignatureType": signature.kind,
        "SignatureString": signature.data.hex().upper(),
        "UefiSignatureOwner": str(signature.owner),
    }


_ALL = f"{ROOT}/Systems/{{id}}/SecureBoot/{DATABASES}"
_ONE = f"{_ALL}/{{database}}"
RESOURCES = (
    Resource(_ALL, {"GET": _list}),
    Resource(_ONE, {"GET": _get}),
    Resource(f"{_ONE}/Certificates", {"GET": _certificates}),
    Resource(f"{_ONE}/Certificates/{{member}}", {"GET": _certificate}),
    Resource(f"{_ONE}/Signatures", {"GET": _signatures}),
    Resource(f"{_ONE}/Signatures/{{member}}", {"GET": _signature}),
)
