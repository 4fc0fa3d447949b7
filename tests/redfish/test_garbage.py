"""Whatever JSON a client sends, it is taken or refused with a reason, never an exception."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.events import Subscription
from nospoon.bmc.users import User
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.redfish.events import subscribing
from nospoon.services.bmcs.redfish.http import submitted
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.services.bmcs.redfish.resources import accounts, certificate_service
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client, system_of
from nospoon.testing.redfish_app import ROOT, Redfish

from .test_accounts import BOB
from .test_volumes import rack

_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
    st.sampled_from(["http://h/", "http://[", "ResourceEvent", "Task", "OK", "Alert",
                     "ResourceEvent.ResourceChanged", "SuspendRetries", "Operator", "TPM_ALG_RSA"]),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def bodies(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | st.text(), _VALUES, max_size=6)


_SUBSCRIPTION = bodies(
    "Destination", "Protocol", "Context", "HttpHeaders", "RegistryPrefixes", "ResourceTypes",
    "OriginResources", "MessageIds", "EventTypes", "Severities", "SubordinateResources",
    "DeliveryRetryPolicy", "VerifyCertificate", "@odata.id",
)  # fmt: skip


NEEDED = {"Destination": "https://h/x", "Protocol": "Redfish"}


@given(_SUBSCRIPTION)
def test_a_subscription_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        made = subscribing.subscription("1", {**NEEDED, **body})
        assert made.destination.startswith(("http://", "https://"))
        assert "\r" not in repr(made.headers)
    with contextlib.suppress(RedfishError):
        subscribing.changed(Subscription("1", "http://h/"), body)


@given(bodies("UserName", "Password", "RoleId", "Enabled", "Locked", "AccountTypes"))
def test_an_account_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        made = accounts._changed(frozenset(), User(3), body)
        assert len(made.name.encode()) <= 16
        assert len(made.password.encode()) <= 20


@given(bodies("EventId", "EventType", "Message", "MessageId", "MessageArgs", "Severity",
              "OriginOfCondition", "EventTimestamp", "EventGroupId"))  # fmt: skip
def test_a_test_event_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        what, told = submitted.event({"MessageId": "Base.1.18.Success", **body})
        assert "\n" not in what.id
        assert set(told) <= {each.name for each in submitted.SUBMIT.parameters}


@given(bodies("CommonName", "Country", "Email", "AlternativeNames", "KeyPairAlgorithm",
              "KeyBitLength", "KeyCurveId"))  # fmt: skip
def test_a_signing_request_is_read_or_refused(body: dict[str, Any]) -> None:
    needed = {"CertificateCollection": {}, "CommonName": "x"}
    with contextlib.suppress(RedfishError):
        given = certificate_service.GENERATE.read({**needed, **body})
        certificate_service._subject(given)
        certificate_service._alternatives(given)
        certificate_service._key(given)


ODD: tuple[Any, ...] = (
    [],
    {},
    [None],
    [{}],
    {"a": []},
    0,
    -1,
    1.5,
    "",
    "x" * 300,
    True,
    False,
    None,
)
SERVICE = "/redfish/v1"
WRITABLE: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "PATCH {system}": ({}, (
        "AssetTag", "PowerRestorePolicy", "IndicatorLED", "LocationIndicatorActive", "Boot",
        "Boot/BootSourceOverrideTarget", "Boot/BootSourceOverrideEnabled",
        "Boot/BootSourceOverrideMode", "Boot/HttpBootUri", "Boot/BootOrder",
    )),
    "PATCH {chassis}": ({}, ("AssetTag", "IndicatorLED", "LocationIndicatorActive")),
    "PATCH {manager}": ({}, ("DateTime",)),
    "PATCH {manager}/VirtualMedia/Cd": ({}, ("VerifyCertificate",)),
    "PATCH {system}/SecureBoot": ({}, ("SecureBootEnable",)),
    "PATCH {system}/Bios/Settings": ({}, (
        "Attributes", "Attributes/AcPowerRecovery", "Attributes/x", "@Redfish.SettingsApplyTime",
    )),
    "PATCH /redfish/v1/EventService": ({}, (
        "ServiceEnabled", "DeliveryRetryAttempts", "DeliveryRetryIntervalSeconds",
    )),
    "POST /redfish/v1/EventService/Subscriptions": (NEEDED, (
        "Destination", "Protocol", "Context", "HttpHeaders", "RegistryPrefixes", "ResourceTypes",
        "OriginResources", "MessageIds", "EventTypes", "Severities", "DeliveryRetryPolicy",
        "SubordinateResources", "VerifyCertificate",
    )),
    "POST /redfish/v1/AccountService/Accounts": (
        BOB, ("UserName", "Password", "RoleId", "Enabled", "Locked", "AccountTypes"),
    ),
    "POST /redfish/v1/SessionService/Sessions": ({}, ("UserName", "Password")),
    "POST {system}/Storage/0/Volumes": ({"CapacityBytes": 1}, (
        "CapacityBytes", "RAIDType", "VolumeType", "Name", "DisplayName", "Encrypted", "Links",
        "Links/Drives", "@Redfish.OperationApplyTime",
    )),
    "POST {system}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia": ({"Image": "http://h/"}, (
        "Image", "Inserted", "WriteProtected", "UserName", "Password", "TransferMethod",
        "TransferProtocolType", "MediaType",
    )),
    "POST /redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate": (
        {"ImageURI": "http://h/bmc-1.bin"},
        ("ImageURI", "TransferProtocol", "Targets", "Username", "Password",
         "@Redfish.OperationApplyTime"),
    ),
    "POST {system}/Actions/ComputerSystem.Reset": ({}, ("ResetType",)),
    "POST {manager}/LogServices/SEL/Actions/LogService.ClearLog": ({}, ("LogEntriesETag",)),
}  # fmt: skip
"""What can be written where, with what else a body needs there."""


def _with(body: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    outer, slash, inner = name.partition("/")
    return {**body, outer: {inner: value} if slash else value}


def _ask_all(config: BmcConfig, asked: Iterable[tuple[str, str, bytes]]) -> list[str]:
    """Those that were not answered as a request that was taken or refused, over one connection."""
    line = http.client.HTTPConnection(config.bmc.address, config.bmc.redfish_port, timeout=30)
    headers = {**client(config).headers, "Content-Type": "application/json"}
    broken = []
    for method, path, body in asked:
        line.request(method, path, body, headers)
        answer = line.getresponse()
        answer.read()
        if answer.status >= 500 and answer.status != 503:
            broken.append(f"{method} {path} {body!r}: {answer.status}")
    line.close()
    return broken


async def test_no_value_of_any_property_breaks_the_service() -> None:
    async with rack() as b:
        uuid = b.first.bmc.uuid
        places = {
            "system": system_of(b.first),
            "chassis": f"{SERVICE}/Chassis/{uuid}",
            "manager": f"{SERVICE}/Managers/{uuid}",
        }
        asked = (
            (*line.format(**places).split(), json.dumps(_with(needed, name, value)).encode())
            for line, (needed, names) in WRITABLE.items()
            for name in names
            for value in ODD
        )
        assert await asyncio.to_thread(_ask_all, b.first, asked) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("component", ["BMC", "-BIOS"])
async def test_firmware_of_no_system_is_not_found(component: str) -> None:
    async with bench(1) as b:
        path = f"{ROOT}/UpdateService/FirmwareInventory/{component}"
        assert (await Redfish.of(b).ask("GET", path)).status == 404


async def test_a_link_of_a_client_to_a_stream_is_not_followed() -> None:
    async with bench(1) as b:
        events, redfish = f"{ROOT}/EventService", Redfish.of(b)
        origins = [{"@odata.id": f"{events}/SSE"}]
        wanted = {"Destination": "http://192.0.2.1/", "Protocol": "Redfish"}
        made = await redfish.ask(
            "POST", f"{events}/Subscriptions", {**wanted, "OriginResources": origins}
        )
        shown = await redfish.ask("GET", made.headers["location"] + "?$expand=*")
        assert (shown.status, shown.json["OriginResources"]) == (200, origins)
