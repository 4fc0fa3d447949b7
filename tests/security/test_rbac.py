"""Who may do what by Redfish: every route, asked by everyone, with every kind of body.

The table below declares the privilege that each method of each route needs, after DSP8011 and
DSP0266 §13.7: Login for ReadOnly and above, ConfigureComponents for Operator and above, the rest
for Administrator. A route without an entry fails. What is refused changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.redfish.app import RESOURCES, find
from nospoon.testing.bench import Bench, bench, endpoint, with_disk
from nospoon.testing.redfish import Answer
from nospoon.testing.redfish_app import ROOT, Login, Redfish, state


class Need(IntEnum):
    """The least that a caller must be."""

    NOTHING = 0
    READ_ONLY = 2
    OPERATOR = 3
    ADMINISTRATOR = 4
    OF_ALL = 5
    """Administrator of all BMCs that show the same certificate; here, nobody is."""


NOTHING, READ_ONLY, OPERATOR, ADMINISTRATOR, OF_ALL = Need
READ = {"GET": READ_ONLY}
SYSTEM, MANAGER, CHASSIS = (
    f"{ROOT}/Systems/{{id}}",
    f"{ROOT}/Managers/{{id}}",
    f"{ROOT}/Chassis/{{id}}",
)
EVENTS, ACCOUNTS = f"{ROOT}/EventService", f"{ROOT}/AccountService/Accounts"
SESSIONS, DATABASES = f"{ROOT}/SessionService/Sessions", f"{SYSTEM}/SecureBoot/SecureBootDatabases"
CERTIFICATES = f"{MANAGER}/NetworkProtocol/HTTPS/Certificates"
_SEL, _CD = "LogServices/SEL", "VirtualMedia/Cd/Actions/VirtualMedia"

PRIVILEGES: Mapping[str, Mapping[str, Need]] = {
    **{path: {"GET": NOTHING} for path in (
        "/redfish", ROOT, f"{ROOT}/", f"{ROOT}/$metadata", f"{ROOT}/odata",
    )},
    **{f"{ROOT}/{path}": READ for path in (
        "Systems", "Managers", "Chassis", "SessionService", "TaskService", "TaskService/Tasks",
        "TaskService/Tasks/{task}", "TaskService/TaskMonitors/{task}", "AccountService",
        "AccountService/Roles", "AccountService/Roles/{member}", "UpdateService",
        "UpdateService/FirmwareInventory", "UpdateService/FirmwareInventory/{member}",
        "Registries", "Registries/{member}", "Registries/{member}/{file}", "JsonSchemas",
        "JsonSchemas/{member}", "EventService/SSE", "CertificateService",
        "CertificateService/CertificateLocations",
    )},
    **{f"{SYSTEM}/{path}": READ for path in (
        "EthernetInterfaces", "EthernetInterfaces/{nic}", "Processors", "Processors/{member}",
        "Memory", "Memory/{member}", "Storage", "Storage/{member}", "Storage/{storage}/Controllers",
        "Storage/{storage}/Controllers/{member}", "BootOptions", "BootOptions/{member}",
        "VirtualMedia", "LogServices", "LogServices/{member}", f"{_SEL}/Entries",
        f"{_SEL}/Entries/{{member}}", "Bios",
    )},
    **{f"{MANAGER}/{path}": READ for path in (
        "VirtualMedia", "SerialInterfaces", "SerialInterfaces/{member}", "EthernetInterfaces",
        "EthernetInterfaces/{member}", "LogServices",
        "LogServices/{member}", "NetworkProtocol", f"{_SEL}/Entries", f"{_SEL}/Entries/{{member}}",
    )},
    **{f"{CHASSIS}/{path}": READ for path in (
        "Drives", "Drives/{member}", "Sensors", "Sensors/{member}", "ThermalSubsystem/Fans",
        "ThermalSubsystem/Fans/{member}", "PowerSubsystem/PowerSupplies",
        "PowerSubsystem/PowerSupplies/{member}", "Power", "Thermal", "PowerSubsystem",
        "ThermalSubsystem", "ThermalSubsystem/ThermalMetrics", "EnvironmentMetrics",
    )},
    **{f"{DATABASES}{path}": READ for path in (
        "", "/{database}", "/{database}/Certificates", "/{database}/Certificates/{member}",
        "/{database}/Signatures", "/{database}/Signatures/{member}",
    )},
    CERTIFICATES: READ,
    f"{CERTIFICATES}/{{member}}": READ,
    SYSTEM: {**READ, "PATCH": OPERATOR},
    MANAGER: {**READ, "PATCH": ADMINISTRATOR},
    CHASSIS: {**READ, "PATCH": OPERATOR},
    SESSIONS: {**READ, "POST": NOTHING},
    f"{SESSIONS}/Members": {"POST": NOTHING},
    f"{SESSIONS}/{{session}}": {**READ, "DELETE": ADMINISTRATOR},
    ACCOUNTS: {**READ, "POST": ADMINISTRATOR},
    f"{ACCOUNTS}/Members": {"POST": ADMINISTRATOR},
    f"{ACCOUNTS}/{{member}}": {**READ, "PATCH": ADMINISTRATOR, "DELETE": ADMINISTRATOR},
    f"{SYSTEM}/Actions/ComputerSystem.Reset": {"POST": OPERATOR},
    f"{SYSTEM}/VirtualMedia/{{member}}": {**READ, "PATCH": OPERATOR},
    f"{MANAGER}/VirtualMedia/{{member}}": {**READ, "PATCH": OPERATOR},
    **{f"{place}/{_CD}.{verb}Media": {"POST": OPERATOR}
       for place in (SYSTEM, MANAGER) for verb in ("Insert", "Eject")},
    **{f"{place}/{_SEL}/Actions/LogService.ClearLog": {"POST": OPERATOR}
       for place in (SYSTEM, MANAGER)},
    f"{ROOT}/UpdateService/Actions/UpdateService.SimpleUpdate": {"POST": ADMINISTRATOR},
    f"{SYSTEM}/Bios/Settings": {**READ, "PATCH": OPERATOR},
    f"{SYSTEM}/Bios/Actions/Bios.ResetBios": {"POST": OPERATOR},
    f"{SYSTEM}/Bios/Actions/Bios.ChangePassword": {"POST": OPERATOR},
    f"{SYSTEM}/Storage/{{storage}}/Volumes": {**READ, "POST": OPERATOR},
    f"{SYSTEM}/Storage/{{storage}}/Volumes/{{member}}": {**READ, "DELETE": OPERATOR},
    f"{MANAGER}/Actions/Manager.Reset": {"POST": ADMINISTRATOR},
    f"{MANAGER}/Actions/Manager.ResetToDefaults": {"POST": ADMINISTRATOR},
    f"{SYSTEM}/SecureBoot": {**READ, "PATCH": OPERATOR},
    f"{SYSTEM}/SecureBoot/Actions/SecureBoot.ResetKeys": {"POST": OPERATOR},
    EVENTS: {**READ, "PATCH": ADMINISTRATOR},
    f"{EVENTS}/Actions/EventService.SubmitTestEvent": {"POST": OPERATOR},
    f"{EVENTS}/Actions/EventService.TestEventSubscription": {"POST": OPERATOR},
    f"{EVENTS}/Subscriptions": {**READ, "POST": OPERATOR},
    f"{EVENTS}/Subscriptions/Members": {"POST": OPERATOR},
    f"{EVENTS}/Subscriptions/{{member}}": {**READ, "PATCH": OPERATOR, "DELETE": OPERATOR},
    f"{EVENTS}/Subscriptions/{{member}}/Actions/EventDestination.ResumeSubscription": {
        "POST": OPERATOR},
    f"{ROOT}/CertificateService/Actions/CertificateService.GenerateCSR": {"POST": OF_ALL},
    f"{ROOT}/CertificateService/Actions/CertificateService.ReplaceCertificate": {
        "POST": OF_ALL},
}  # fmt: skip
WRITES = [(path, method) for path in PRIVILEGES for method in PRIVILEGES[path] if method != "GET"]

ACCOUNT = {"UserName": "eve", "Password": "hunter2222", "RoleId": "Administrator"}
SUBSCRIPTION = {"Destination": "https://127.0.0.1:1/", "Protocol": "Redfish", "Context": "y"}
VALID: Mapping[str, Any] = {
    SYSTEM: {"AssetTag": "taken"},
    MANAGER: {"DateTime": "2031-01-01T00:00:00+00:00"},
    CHASSIS: {"AssetTag": "taken"},
    ACCOUNTS: ACCOUNT,
    f"{ACCOUNTS}/Members": ACCOUNT,
    f"{ACCOUNTS}/{{member}}": {"Password": "another one"},
    f"{SYSTEM}/Actions/ComputerSystem.Reset": {"ResetType": "On"},
    f"{SYSTEM}/VirtualMedia/{{member}}": {"VerifyCertificate": True},
    f"{MANAGER}/VirtualMedia/{{member}}": {"VerifyCertificate": True},
    f"{SYSTEM}/{_CD}.InsertMedia": {"Image": "http://h/x.iso"},
    f"{MANAGER}/{_CD}.InsertMedia": {"Image": "http://h/x.iso"},
    f"{ROOT}/UpdateService/Actions/UpdateService.SimpleUpdate": {
        "ImageURI": "http://h/bmc-9.9.9.bin", "Targets": ["{inventory}"]},
    f"{SYSTEM}/Bios/Settings": {"Attributes": {"BootMode": "Uefi"}},
    f"{SYSTEM}/Storage/{{storage}}/Volumes": {"CapacityBytes": 8 << 20},
    f"{MANAGER}/Actions/Manager.Reset": {"ResetType": "ForceRestart"},
    f"{MANAGER}/Actions/Manager.ResetToDefaults": {"ResetType": "ResetAll"},
    f"{SYSTEM}/SecureBoot": {"SecureBootEnable": False},
    f"{SYSTEM}/SecureBoot/Actions/SecureBoot.ResetKeys": {"ResetKeysType": "DeleteAllKeys"},
    EVENTS: {"DeliveryRetryAttempts": 7},
    f"{EVENTS}/Actions/EventService.SubmitTestEvent": {
        "MessageId": "ResourceEvent.1.3.TestMessage"},
    f"{EVENTS}/Subscriptions": SUBSCRIPTION,
    f"{EVENTS}/Subscriptions/Members": SUBSCRIPTION,
    f"{EVENTS}/Subscriptions/{{member}}": {"Context": "taken"},
    f"{ROOT}/CertificateService/Actions/CertificateService.GenerateCSR": {
        "CertificateCollection": {"@odata.id": "{certificates}"}, "CommonName": "x",
        "City": "x", "Country": "DE", "Organization": "x", "OrganizationalUnit": "x", "State": "x"},
    f"{ROOT}/CertificateService/Actions/CertificateService.ReplaceCertificate": {
        "CertificateUri": {"@odata.id": "{certificates}/1"}, "CertificateType": "PEM",
        "CertificateString": "x"},
}  # fmt: skip
"""Bodies that would work; routes that are not here take an empty one."""


@dataclass(frozen=True, slots=True)
class Actor:
    """One who asks. `foreign`: administers another BMC behind the same listener."""

    name: str
    may: Need
    redfish: Redfish
    foreign: bool = False


@dataclass(slots=True)
class House:
    """A service, everyone who asks it, and where its resources are."""

    bench: Bench
    actors: list[Actor]
    places: dict[str, str]
    files: Path

    @property
    def admin(self) -> Redfish:
        return self.actors[-1].redfish

    def evidence(self) -> Any:
        """All that must not change."""
        kept = {each.name: each.read_bytes() for each in self.files.rglob("*") if each.is_file()}
        return state(self.bench), kept

    def place(self, path: str) -> str:
        """A resource of this route: one that there is, if there is one."""
        known = self.places.get(path)
        if known is None:
            known = path.replace("{id}", str(self.bench.first.bmc.uuid)).replace("{storage}", "0")
            member = self.places.get(path.partition("/Actions/")[0], "x/1").rpartition("/")[2]
            known = re.sub(r"{\w+}", member, known)
        return known

    def valid(self, path: str) -> Any:
        """A body that would work, with the places that it names."""
        uuid = str(self.bench.first.bmc.uuid)
        names = {"{certificates}": CERTIFICATES.replace("{id}", uuid),
                 "{inventory}": f"{ROOT}/UpdateService/FirmwareInventory/{uuid}-BMC"}  # fmt: skip
        return _filled(VALID.get(path, {}), names)

    async def own(self, path: str) -> Any:
        """What a GET of the resource shows, or of that whose action it is."""
        place = self.place(path).partition("/Actions/")[0].removesuffix("/Members")
        return (await self.admin.ask("GET", place)).json


def _filled(body: Any, names: Mapping[str, str]) -> Any:
    match body:
        case dict():
            return {key: _filled(value, names) for key, value in body.items()}
        case list():
            return [_filled(each, names) for each in body]
        case str():
            for name, value in names.items():
                body = body.replace(name, value)
    return body


@asynccontextmanager
async def house(files: Path) -> AsyncIterator[House]:
    async with bench(2, firmware=Firmware.UEFI_SECURE, tls=files, restart_seconds=0) as b:
        await b.service.put(with_disk(b.first))
        admin = Redfish.of(b)
        actors = [Actor("anonymous", NOTHING, admin.without_login())]
        second = b.configs[1]
        foreign = Redfish.of(b, Login(second.bmc.username, second.password))
        actors.append(Actor("foreign", ADMINISTRATOR, foreign, foreign=True))
        for role, need in (("ReadOnly", READ_ONLY), ("Operator", OPERATOR)):
            login = Login(role.lower(), "hunter2222")
            body = {"UserName": login.username, "Password": login.password, "RoleId": role}
            assert (await admin.ask("POST", ACCOUNTS, body)).status == 201
            actors.append(Actor(role, need, Redfish.of(b, login)))
        actors.append(Actor("Administrator", ADMINISTRATOR, admin))
        victim = await admin.ask("POST", ACCOUNTS, {**ACCOUNT, "UserName": "victim"})
        login_ = {"UserName": b.first.bmc.username, "Password": b.first.password}
        session = await admin.ask("POST", SESSIONS, login_)
        where = f"{EVENTS}/Subscriptions"
        subscription = await admin.ask("POST", where, SUBSCRIPTION)
        volume = f"{SYSTEM}/Storage/0/Volumes".replace("{id}", str(b.first.bmc.uuid))
        added = await admin.ask("POST", volume, {"CapacityBytes": 8 << 20})
        assert added.status < 300
        places = await found(admin, str(b.first.bmc.uuid))
        places |= {
            f"{ACCOUNTS}/{{member}}": victim.headers["location"],
            f"{SYSTEM}/Storage/{{storage}}/Volumes/{{member}}": await last(admin, volume),
            f"{SESSIONS}/{{session}}": session.headers["location"],
            f"{EVENTS}/Subscriptions/{{member}}": subscription.headers["location"],
        }
        yield House(b, actors, places, files)


async def last(admin: Redfish, path: str) -> str:
    """The member of a collection that was added last."""
    return str((await admin.ask("GET", path)).json["Members"][-1]["@odata.id"])


async def found(admin: Redfish, uuid: str) -> dict[str, str]:
    """A resource of each route that links lead to; of the first BMC where BMCs have one each."""
    places: dict[str, str] = {}
    for path in await admin.resources():
        route = find(path)
        assert route is not None
        if "{id}" not in route[0].path or uuid in path:
            places.setdefault(route[0].path, path)
    return places


def test_every_route_has_an_entry_and_every_entry_a_route() -> None:
    assert {each.path: set(each.methods) for each in RESOURCES} == {
        path: set(needs) for path, needs in PRIVILEGES.items()
    }
    for each in RESOURCES:
        open_ = {method for method, need in PRIVILEGES[each.path].items() if need is NOTHING}
        assert each.open_ == open_, each.path


def check(actor: Actor, need: Need, path: str, answer: Answer, kind: str) -> bool:
    """Whether it is allowed, after the answer was compared with what the table expects."""
    said = (actor.name, path, kind, answer.status)
    if actor.may < need:
        if actor.may is NOTHING:
            assert answer.status == 401, said
        elif kind == "valid":
            assert answer.status in {403, 404}, said
        assert 400 <= answer.status < 500, said
        return False
    if actor.foreign and "{id}" in path:
        assert answer.status == 404, said
        return False
    if need is not NOTHING:
        assert answer.status not in {401, 403} or actor.foreign, said
    assert answer.status < 500 or answer.status in {501, 503}, said
    return True


@pytest.mark.parametrize(("path", "method"), WRITES)
async def test_what_the_table_refuses_is_refused_and_changes_nothing(
    path: str, method: str, tmp_path: Path
) -> None:
    need = PRIVILEGES[path][method]
    async with house(tmp_path) as all_:
        own = await all_.own(path)
        bodies = {"empty": {}, "its own GET body": own, "valid": all_.valid(path)}
        place = all_.place(path)
        for actor in all_.actors:
            for kind, body in bodies.items():
                before, first = all_.evidence(), first_of(all_)
                answer = await actor.redfish.ask(method, place, body)
                if not check(actor, need, path, answer, kind):
                    assert all_.evidence() == before, (actor.name, kind)
                elif actor.foreign:
                    assert first_of(all_) == first, kind


def first_of(all_: House) -> Any:
    """What another BMC's administrator must not change: the first BMC, and its clients'."""
    served = all_.bench.service.status(all_.bench.first.bmc.uuid)
    assert served is not None
    first, accounts = all_.bench.first, all_.bench.service.listeners.accounts
    account = accounts.find(endpoint(first), "admin", first.password)
    assert account is not None
    events = all_.bench.service.events.at(all_.admin.server, account)
    return served.aggregate.runtime, served.aggregate.is_on, events


async def test_what_is_read_needs_what_the_table_says(tmp_path: Path) -> None:
    async with house(tmp_path) as all_:
        before, unseen = all_.evidence(), set()
        for path, needs in PRIVILEGES.items():
            if "GET" not in needs:
                continue
            place = all_.place(path)
            for actor in all_.actors:
                if path.endswith("/SSE") and actor.may is not NOTHING:
                    continue  # it has no end
                for body in (None, {}, {"Name": "x"}):
                    answer = await actor.redfish.ask("GET", place, body)
                    check(actor, needs["GET"], path, answer, "valid")
            if answer.status != 200:
                unseen.add(path)
        assert all_.evidence() == before
        assert unseen <= UNSEEN


UNSEEN = {
    f"{ROOT}/EventService/SSE",
    f"{ROOT}/TaskService/Tasks/{{task}}",
    f"{ROOT}/TaskService/TaskMonitors/{{task}}",
    f"{ROOT}/JsonSchemas/{{member}}",
    f"{SYSTEM}/{_SEL}/Entries/{{member}}",
    f"{MANAGER}/{_SEL}/Entries/{{member}}",
    *(f"{DATABASES}{path}" for path in (
        "/{database}", "/{database}/Certificates", "/{database}/Certificates/{member}",
        "/{database}/Signatures", "/{database}/Signatures/{member}",
    )),
}  # fmt: skip
"""Routes without a resource in this house."""
