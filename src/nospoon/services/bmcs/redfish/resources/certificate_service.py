"""CertificateService (DSP0266 §13.6): the certificate that Redfish is served with, and another one.

A certificate is that of an address: who changes it must be administrator of every BMC that shows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from starlette.responses import Response

from nospoon.errors import Conflict, UsageError
from nospoon.runtime.tls import Key
from nospoon.services.bmcs.certificates import Wanted
from nospoon.services.bmcs.redfish.http.answers import ODATA, linked, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import HIDDEN, Action, Given, Parameter
from nospoon.services.bmcs.redfish.http.routes import Resource, listing, member
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import RETRY_AFTER
from nospoon.services.bmcs.served import bind_address

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

SERVICE = "CertificateService"
ONLY = "1"
_HTTPS = "Managers/{id}/NetworkProtocol/HTTPS/Certificates"
_TAIL = f"NetworkProtocol/HTTPS/Certificates/{ONLY}"
_NAMES = {
    "CommonName": NameOID.COMMON_NAME,
    "Organization": NameOID.ORGANIZATION_NAME,
    "OrganizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "City": NameOID.LOCALITY_NAME,
    "State": NameOID.STATE_OR_PROVINCE_NAME,
    "Country": NameOID.COUNTRY_NAME,
    "Email": NameOID.EMAIL_ADDRESS,
}
"""Property -> attribute of a distinguished name."""
_CURVES: Mapping[str, Callable[[], ec.EllipticCurve]] = {
    "TPM_ECC_NIST_P256": ec.SECP256R1,
    "TPM_ECC_NIST_P384": ec.SECP384R1,
    "TPM_ECC_NIST_P521": ec.SECP521R1,
}
_RSA, _ECDSA = "TPM_ALG_RSA", "TPM_ALG_ECDSA"
_SIZES = (2048, 3072, 4096)
_GENERATE, _REPLACE = "GenerateCSR", "ReplaceCertificate"
GENERATE = Action(
    f"{SERVICE}.{_GENERATE}",
    (
        Parameter("CertificateCollection", dict, required=True),
        *(Parameter(name, required=name == "CommonName") for name in _NAMES),
        Parameter("AlternativeNames", list),
        Parameter("KeyPairAlgorithm", allowed=(_ECDSA, _RSA)),
        Parameter("KeyBitLength", int),
        Parameter("KeyCurveId", allowed=tuple(_CURVES)),
    ),
    frozenset({"ChallengePassword", "ContactPerson", "GivenName", "Initials", "KeyUsage", "Surname",
               "UnstructuredName"}),
)  # fmt: skip
REPLACE = Action(
    f"{SERVICE}.{_REPLACE}",
    (
        Parameter("CertificateString", required=True, secret=True),
        Parameter("CertificateType", required=True, allowed=("PEM", "PEMchain")),
        Parameter("CertificateUri", dict, required=True),
    ),
    frozenset({"Password"}),
)


def _action(name: str, more: Mapping[str, object]) -> dict[str, object]:
    target = f"{ROOT}/{SERVICE}/Actions/CertificateService.{name}"
    return {f"#CertificateService.{name}": {"target": target, **more}}


async def _service(exchange: Exchange) -> Response:
    allowable = "Redfish.AllowableValues"
    generate = {
        f"KeyPairAlgorithm@{allowable}": [_ECDSA, _RSA],
        f"KeyCurveId@{allowable}": list(_CURVES),
    }
    body = {
        **resource("CertificateService", SERVICE, SERVICE, "Certificate Service"),
        "CertificateLocations": ref(f"{SERVICE}/CertificateLocations"),
        "Actions": {
            **_action(_GENERATE, generate),
            **_action(_REPLACE, {f"CertificateType@{allowable}": ["PEM", "PEMchain"]}),
        },
    }
    return tagged(exchange, body)


async def _locations(exchange: Exchange) -> Response:
    path = f"{SERVICE}/CertificateLocations"

    def names(system: str) -> list[str]:
        found = exchange.service.registry.status(UUID(system))
        return [f"{system}/{_TAIL}"] if found is not None and found.bmc.tls else []

    def empty(count: int) -> dict[str, object]:
        return {
            **resource(
                "CertificateLocations", path, "CertificateLocations", "Certificate Locations"
            ),
            "Links": {"Certificates": [], "Certificates@odata.count": count},
        }

    return await linked(exchange, "Managers", names, empty, ("Links", "Certificates"))


def _ids(served: Served) -> list[str]:
    return [ONLY] if served.bmc.tls else []


def _certificate(exchange: Exchange) -> Callable[[Served, str], dict[str, object] | None]:
    def make(served: Served, wanted: str) -> dict[str, object] | None:
        kept = exchange.service.listeners.certificates(served.bmc)
        if kept is None or wanted != ONLY:
            return None
        path = f"{_HTTPS.format(id=served.bmc.uuid)}/{ONLY}"
        owner = exchange.service.listeners.certificate_owner(served.bmc)
        chain = kept.chain(bind_address(served.bmc), served.bmc.certificate, owner)
        return certificate(path, ONLY, chain, usage="Web")

    return make


async def _one(exchange: Exchange) -> Response:
    return await member(_certificate(exchange))(exchange)


def certificate(
    path: str, id_: str, chain: list[x509.Certificate], *, usage: str
) -> dict[str, object]:
    """Certificate: the first of a chain, and the chain. `usage`: of CertificateUsageType."""
    first = chain[0]
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    size = (first.serial_number.bit_length() + 7) // 8 or 1
    return {
        **resource("Certificate", path, id_, f"{usage} Certificate"),
        "CertificateString": pem.decode(),
        "CertificateType": "PEM" if len(chain) == 1 else "PEMchain",
        "CertificateUsageTypes": [usage],
        "Subject": _identifier(first.subject),
        "Issuer": _identifier(first.issuer),
        "ValidNotBefore": when(first.not_valid_before_utc.timestamp()),
        "ValidNotAfter": when(first.not_valid_after_utc.timestamp()),
        "SerialNumber": first.serial_number.to_bytes(size, "big").hex(":"),
        "Fingerprint": first.fingerprint(hashes.SHA256()).hex(":"),
        "FingerprintHashAlgorithm": "TPM_ALG_SHA256",
        "SignatureAlgorithm": first.signature_algorithm_oid.dotted_string,
    }


def _identifier(name: x509.Name) -> dict[str, str]:
    found = ((word, name.get_attributes_for_oid(oid)) for word, oid in _NAMES.items())
    return {word: str(values[0].value) for word, values in found if values}


def _named(exchange: Exchange, action: Action, uri: object, name: str, *, tail: str) -> Served:
    """The BMC whose certificate a parameter names, when this caller may change it."""
    match uri:
        case {"@odata.id": str(path)}:
            parts = path.removeprefix(f"{ROOT}/").rstrip("/").split("/")
        case _:
            raise action.wrong_type(name, uri)
    if len(parts) < 2 or "/".join(parts) != _HTTPS.format(id=parts[1]) + tail:
        raise action.not_in_list(name, path, (f"{ROOT}/{_HTTPS}{tail}",))
    served = exchange.administered(parts[1])
    accounts, account = exchange.service.listeners.accounts, exchange.account
    beside = exchange.service.listeners.beside(served.bmc)
    if not accounts.administers(account, beside):
        raise errors.forbidden()
    if served.bmc.certificate:
        raise errors.general(409, "The cluster file gives this certificate: change it there.")
    return served


async def _generate(exchange: Exchange) -> Response:
    """GenerateCSR: the key stays here; the next certificate for it is taken."""
    given = GENERATE.read(await exchange.given())
    place = given["CertificateCollection"]
    served = _named(exchange, GENERATE, place, "CertificateCollection", tail="")
    kept = exchange.service.listeners.certificates(served.bmc)
    if kept is None:
        raise errors.general(409, "This BMC is served without TLS.")
    wanted = Wanted(_subject(given), _alternatives(given), _key(given))
    owner = exchange.service.listeners.certificate_owner(served.bmc)
    try:
        text = await exchange.service.listeners.keys.run(
            partial(kept.request, bind_address(served.bmc), wanted, owner), client=served.bmc.uuid
        )
    except UsageError as error:
        raise errors.of(error) from None
    except Conflict as error:
        raise _busy(error) from None
    return respond({"CertificateCollection": place, "CSRString": text})


def _subject(given: Given) -> x509.Name:
    return x509.Name(list(_attributes(given)))


def _attributes(given: Given) -> Iterator[x509.NameAttribute[str]]:
    for name, oid in _NAMES.items():
        if name not in given:
            continue
        try:
            yield x509.NameAttribute(oid, given.text(name))
        except ValueError:
            what = "a value that X.509 allows there"
            raise GENERATE.wrong_format(name, given[name], what) from None


def _alternatives(given: Given) -> tuple[str, ...]:
    found = given.items_of("AlternativeNames")
    names = tuple(each for each in found if isinstance(each, str) and each.isascii() and each)
    if len(names) < len(found):
        raise GENERATE.wrong_type("AlternativeNames", found)
    return names


def _key(given: Given) -> Callable[[], Key]:
    if given.get("KeyPairAlgorithm", _ECDSA) == _RSA:
        size = given.get("KeyBitLength", _SIZES[0])
        if not isinstance(size, int) or size not in _SIZES:
            sizes = tuple(str(each) for each in _SIZES)
            raise GENERATE.not_in_list("KeyBitLength", size, sizes)
        return partial(rsa.generate_private_key, 65537, size)
    curve = given.text("KeyCurveId", next(iter(_CURVES)))
    return partial(ec.generate_private_key, _CURVES[curve]())


async def _replace(exchange: Exchange) -> Response:
    """ReplaceCertificate: who connects from now on is shown the new one."""
    given = REPLACE.read(await exchange.given())
    text = given.text("CertificateString")
    if not text.isascii():
        raise REPLACE.wrong_format("CertificateString", HIDDEN, "a certificate in PEM")
    served = _named(exchange, REPLACE, given["CertificateUri"], "CertificateUri", tail=f"/{ONLY}")
    kept = exchange.service.listeners.certificates(served.bmc)
    if kept is None:
        raise errors.not_found(exchange.path)
    owner = exchange.service.listeners.certificate_owner(served.bmc)
    try:
        await exchange.service.listeners.keys.run(
            partial(kept.replace, bind_address(served.bmc), text, owner), client=served.bmc.uuid
        )
    except UsageError as error:
        raise errors.of(error) from None
    except Conflict as error:
        raise _busy(error) from None
    exchange.service.listeners.renew_certificate(served.bmc)
    place = f"{ROOT}/{_HTTPS.format(id=served.bmc.uuid)}/{ONLY}"
    return Response(status_code=204, headers={**ODATA, "Location": place})


def _busy(error: Conflict) -> errors.RedfishError:
    return errors.general(503, str(error), headers={"Retry-After": RETRY_AFTER})


_ACTIONS = f"{ROOT}/{SERVICE}/Actions/CertificateService"
RESOURCES = (
    Resource(f"{ROOT}/{SERVICE}", {"GET": _service}),
    Resource(f"{ROOT}/{SERVICE}/CertificateLocations", {"GET": _locations}),
    Resource(f"{_ACTIONS}.{_GENERATE}", {"POST": _generate}),
    Resource(f"{_ACTIONS}.{_REPLACE}", {"POST": _replace}),
    Resource(f"{ROOT}/{_HTTPS}", {"GET": listing("Certificate", _HTTPS, _ids)}),
    Resource(f"{ROOT}/{_HTTPS}/{{member}}", {"GET": _one}),
)
