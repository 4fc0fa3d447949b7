"""A cloud in memory, beside the real one: what is used of Keystone, Nova, Neutron and Glance.

For what a real one cannot do in a test: fail at a given call, or have a thousand servers.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nospoon.testing import fake_cinder, fake_glance
from nospoon.testing.fake_cinder import Json
from nospoon.testing.fake_groups import has_compute_host, server_groups
from nospoon.testing.fake_key_pairs import key_pairs
from nospoon.testing.fake_neutron import KINDS, PROJECT, Neutron, missing

GIB_FLAVOR = {"OS-FLV-EXT-DATA:ephemeral": 10, "disk": 1, "extra_specs": {}}
DHCP_NETWORK = {
    "name": "external", "project_id": "1" * 32, "subnets": ["s"], "mtu": 1500,
    "router:external": True,
}  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
OFF, ON, RESCUED, SHELVED = "SHUTOFF", "ACTIVE", "RESCUE", "SHELVED_OFFLOADED"
BY_VOLUME, OF_VOLUME = 2.87, 2.93
"""Microversions by which a server is rescued and rebuilt whose root disk is a volume."""
FAULT = {"error": {"message": "a fault of the test"}}
UNAUTHORIZED = {"error": {"code": 401, "message": "The request requires authentication."}}


@dataclass
class Rule:
    """What happens to calls whose `METHOD /path` matches, `times` times after the first `skip`."""

    pattern: str
    answer: Callable[[], Response | None]
    times: int = 1
    skip: int = 0


@dataclass
class FakeCloud:
    """`calls`: how often each kind of call came; `log`: all of them, in order. `rules`: faults.

    `acted`: actions that were carried out on servers. `requested`: servers as they were asked for.
    `regions`: others, by the URLs of their clouds. `heard`: is called with each call that was
    carried out and is not answered yet.
    `serial_url`: where its serial consoles are, "" where it has none. `roles`: of the login;
    `hypervisors`: what compute hosts run.
    `boots`: is called with the id and user data of servers that are made with some; `ends`: with
    the ids of servers that go.
    `compute_hosts`: so many, on which groups have their servers; 0: Nova looks at no group.
    `full`: names of zones and flavors for which there is none.
    `failing_starts`: so many leave the server off. `slow`: looks at a server until what is under
    way is over. `volumes`: of Cinder, which there is where
    `volume_types` names some, the usual one first; `volume_quotas`: by their names. `revoked`:
    passwords that are refused, with their tokens. `api_timeout`: of its settings, none for 0.
    """

    url: str = ""
    servers: dict[str, Json] = field(default_factory=dict)
    deleted: dict[str, Json] = field(default_factory=dict)
    networks: dict[str, Json] = field(default_factory=dict)
    subnets: dict[str, Json] = field(default_factory=dict)
    ports: dict[str, Json] = field(default_factory=dict)
    floatingips: dict[str, Json] = field(default_factory=dict)
    routers: dict[str, Json] = field(default_factory=dict)
    trunks: dict[str, Json] = field(default_factory=dict)
    has_trunks: bool = True
    has_routers: bool = True
    image_formats: tuple[str, ...] = ("raw", "qcow2", "iso")
    microversion: str = "2.95"
    quotas: dict[str, int] = field(default_factory=dict)
    images: dict[str, Json] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    flavors: dict[str, Json] = field(default_factory=dict)
    server_groups: dict[str, Json] = field(default_factory=dict)
    key_pairs: dict[str, Json] = field(default_factory=dict)
    compute_hosts: int = 0
    full: set[str] = field(default_factory=set)
    limits: Json = field(default_factory=dict)
    volumes: dict[str, Json] = field(default_factory=dict)
    volume_snapshots: dict[str, Json] = field(default_factory=dict)
    volume_types: list[str] = field(default_factory=list)
    volume_quotas: dict[str, int] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    consoles: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    acted: list[str] = field(default_factory=list)
    requested: list[Json] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    heard: Callable[[str], None] | None = None
    regions: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    serial_url: str = ""
    roles: tuple[str, ...] = ("member",)
    hypervisors: tuple[str, ...] = ("QEMU",)
    failing_starts: int = 0
    slow: int = 1
    boots: Callable[[str, str], None] | None = None
    ends: Callable[[str], None] | None = None
    ticks: int = 0
    api_timeout: float = 0

    def __post_init__(self) -> None:
        for number, ram in enumerate((512, 2048), 1):
            self.flavors[str(number)] = {
                "id": str(number), "name": f"metal.{ram}", "vcpus": number, "ram": ram,
                **GIB_FLAVOR,
            }  # fmt: skip
        self.networks["n0"] = {"id": "n0", **DHCP_NETWORK}

    @property
    def settings(self) -> Json:
        """Settings of openstacksdk."""
        return {
            "auth_type": "password",
            "auth": {
                "auth_url": f"{self.url}/identity/v3", "username": "u", "password": "p",
                "project_name": "p", "user_domain_id": "default", "project_domain_id": "default",
            },
            "region_name": "RegionOne",
            **({"api_timeout": self.api_timeout} if self.api_timeout else {}),
        }  # fmt: skip

    def fail(
        self, pattern: str, status: int, *, times: int = 1, skip: int = 0, **headers: str
    ) -> None:
        """Answer calls that match `pattern` with a status."""
        self.rules.append(
            Rule(pattern, lambda: JSONResponse(FAULT, status, headers=headers), times, skip)
        )

    def everything(self) -> dict[str, list[str]]:
        kinds = KINDS | {"servers", "images", "volumes", "server_groups", "key_pairs"}
        return {kind: sorted(getattr(self, kind)) for kind in kinds}

    def now(self) -> str:
        """A time that goes on with each change."""
        self.ticks += 1
        return (START + timedelta(seconds=self.ticks)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def own_server(self, name: str, *, firmware: str = "bios") -> Json:
        """A server that others made, off, with two NICs; one of them has no address."""
        id_, image = str(uuid4()), str(uuid4())
        self.images[image] = {"id": image, "status": "active", "hw_firmware_type": firmware}
        self.servers[id_] = {
            "id": id_, "name": name, "status": OFF, "metadata": {"team": "theirs"},
            "OS-EXT-STS:task_state": None, "updated": self.now(), "image": {"id": image},
            "flavor": {
                "original_name": "their.size", "vcpus": 2, "ram": 2048, "disk": 20, "ephemeral": 5,
            },
            "os-extended-volumes:volumes_attached": [{"id": str(uuid4())}],
        }  # fmt: skip
        for number in (1, 2):
            port: Json = {
                "id": str(uuid4()), "network_id": "n0", "device_id": id_, "description": "",
                "mac_address": f"fa:16:3e:{id_[:2]}:{id_[2:4]}:0{number}", "fixed_ips": [],
            }  # fmt: skip
            self.ports[port["id"]] = port
        return self.servers[id_]

    async def answer(self, request: Request) -> Response:
        path = request.url.path
        call = f"{request.method} {path}"
        self.log.append(call)
        self.calls[re.sub(r"/[0-9a-f-]{32,36}(?=/|$)", "/ID", call)] += 1
        for rule in self.rules:
            if re.search(rule.pattern, call) and rule.times > 0:
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                if (given := rule.answer()) is not None:
                    return given
        service, _, rest = path.strip("/").partition("/")
        if service != "identity" and _password_of(request) in self.revoked:
            return JSONResponse(UNAUTHORIZED, 401)
        handler = {
            "identity": self._keystone, "compute": self._nova,
            "network": self._neutron, "image": self._glance, "volume": self._cinder,
        }.get(service)  # fmt: skip
        if handler is None:
            return JSONResponse({"error": {"message": "no such service"}}, 404)
        answer = await handler(request, f"/{rest}")
        if self.heard is not None:
            self.heard(call)
        return answer

    async def _keystone(self, request: Request, path: str) -> Response:
        if not path.endswith("/auth/tokens"):
            links = [{"rel": "self", "href": f"{self.url}/identity/v3/"}]
            return JSONResponse({"version": {"id": "v3.14", "status": "stable", "links": links}})
        password = (await request.json())["auth"]["identity"]["password"]["user"]["password"]
        if password in self.revoked:
            return JSONResponse(UNAUTHORIZED, 401)
        self.tokens += 1
        names = {"compute": "compute/v2.1", "network": "network", "image": "image"}
        if self.volume_types:
            names["volumev3"] = f"volume/v3/{PROJECT}"
        catalog = [
            {
                "type": kind, "name": kind,
                "endpoints": [
                    {"interface": "public", "region": region, "region_id": region,
                     "url": f"{url}/{place}", "id": f"{kind}-{region}"}
                    for region, url in {"RegionOne": self.url, **self.regions}.items()
                ],
            }
            for kind, place in names.items()
        ]  # fmt: skip
        token = {
            "methods": ["password"], "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z", "catalog": catalog,
            "project": {"id": PROJECT, "name": "p", "domain": {"id": "default", "name": "d"}},
            "user": {"id": "u", "name": "u", "domain": {"id": "default", "name": "d"}},
            "roles": [{"id": each, "name": each} for each in self.roles],
        }  # fmt: skip
        headers = {"X-Subject-Token": f"{password}-{self.tokens}"}
        return JSONResponse({"token": token}, 201, headers=headers)

    async def _nova(self, request: Request, path: str) -> Response:
        path = path.removeprefix("/v2.1")
        match request.method, path.strip("/").split("/"):
            case _, [""]:
                links = [{"rel": "self", "href": f"{self.url}/compute/v2.1/"}]
                return JSONResponse({"version": {
                    "id": "v2.1", "status": "CURRENT", "version": self.microversion,
                    "min_version": "2.1",
                    "links": links,
                }})  # fmt: skip
            case "GET", ["limits"]:
                limits = {"totalInstancesUsed": len(self.servers), **self.limits}
                return JSONResponse({"limits": {"absolute": limits}})
            case "GET", ["os-hypervisors", "detail"]:
                return self._hypervisors(int(request.query_params["limit"]))
            case "GET", ["flavors", *_]:
                return JSONResponse({"flavors": list(self.flavors.values())})
            case "GET", ["servers", "detail"]:
                since = request.query_params.get("changes-since", "")
                found = [*self.servers.values(), *(self.deleted.values() if since else ())]
                shown = [self._shown(each) for each in found]
                return JSONResponse({"servers": [s for s in shown if s["updated"] >= since]})
            case _, ["os-keypairs", *rest]:
                return await key_pairs(self, request, rest)
            case _, ["os-server-groups", *rest]:
                return await server_groups(self, request, rest)
            case "POST", ["servers"]:
                asked = await request.json()
                hints = asked.get("os:scheduler_hints", {})
                return self._create(asked["server"], hints.get("group", ""))
            case method, ["servers", id_, *rest] if id_ in self.servers:
                return await self._server(request, method, self.servers[id_], rest)
        return missing(path)

    def _hypervisors(self, limit: int) -> Response:
        """By Nova's usual policy, for administrators alone."""
        if "admin" not in self.roles:
            return JSONResponse({"forbidden": {"code": 403, "message": "not allowed"}}, 403)
        found = [{"id": each, "hypervisor_type": each} for each in self.hypervisors]
        more = [{"rel": "next", "href": "…"}] if len(found) > limit else []
        return JSONResponse({"hypervisors": found[:limit], "hypervisors_links": more})

    def _create(self, body: Json, group: str) -> Response:
        id_ = str(uuid4())
        if group and group not in self.server_groups:
            return JSONResponse({"badRequest": {"message": f"no group {group}"}}, 400)
        if body.get("key_name", "") not in {"", *self.key_pairs}:
            return JSONResponse({"badRequest": {"message": "Invalid key_name provided."}}, 400)
        flavor = self.flavors.get(body["flavorRef"])
        most, used = int(self.limits.get("maxTotalInstances", -1)), len(self.servers)
        if 0 <= most <= used:
            words = f"Quota exceeded for instances: Requested 1, but already used {used} of {most}"
            return JSONResponse({"forbidden": {"code": 403, "message": words}}, 403)
        usual = {"boot_index": 0, "destination_type": "local", "uuid": body["imageRef"]}
        disks = body.get("block_device_mapping_v2", [usual])
        root = next(each for each in disks if each["boot_index"] == 0)
        # one whose root disk is a volume has no image of its own
        image = "" if root["destination_type"] == "volume" else root["uuid"]
        if flavor is None or body["imageRef"] != image or root["uuid"] not in self.images:
            return JSONResponse({"badRequest": {"message": "no such flavor or image"}}, 400)
        asked = [each for each in disks if each["destination_type"] == "volume"]
        if any(each.get("volume_type") not in (None, *self.volume_types) for each in asked):
            return JSONResponse({"badRequest": {"message": "no such volume type"}}, 400)
        networks = body["networks"]
        ports = [] if networks == "none" else [each["port"] for each in networks]
        taken = [p for p in ports if self.ports.get(p, {"device_id": "gone"})["device_id"]]
        if taken:
            return JSONResponse({"conflictingRequest": {"message": f"port {taken[0]} in use"}}, 409)
        for port in ports:
            self.ports[port]["device_id"] = id_
        self.requested.append(body)
        for each in asked:
            volume = str(uuid4())
            self.volumes[volume] = {"id": volume, "status": "in-use", "server": id_,
                                    "size": each["volume_size"],
                                    "goes": each["delete_on_termination"],
                                    "volume_type": each.get("volume_type", self.volume_types[0]),
                                    "image_metadata": self._said_of(each.get("uuid", "")),
                                    "attachments": [{"server_id": id_}]}  # fmt: skip
        self.servers[id_] = {
            "id": id_, "name": body["name"], "status": "BUILD", "metadata": body["metadata"],
            "OS-EXT-STS:task_state": "spawning", "updated": self.now(),
            "image": {"id": image} if image else "",
            "os-extended-volumes:volumes_attached": [
                {"id": each} for each, volume in self.volumes.items() if volume["server"] == id_
            ],
            "flavor": {
                "original_name": flavor["name"], "vcpus": flavor["vcpus"], "ram": flavor["ram"],
            },
        }  # fmt: skip
        if group:
            self.server_groups[group]["members"].append(id_)
        if not has_compute_host(self, group, body.get("availability_zone", ""), flavor["name"]):
            self.servers[id_] |= {
                "status": "ERROR", "OS-EXT-STS:task_state": None,
                "fault": {"code": 500, "message": "No valid host was found. "},
            }  # fmt: skip
        if self.boots is not None and "user_data" in body:
            self.boots(id_, b64decode(body["user_data"]).decode())
        return JSONResponse({"server": {"id": id_}}, 202)

    def _shown(self, server: Json) -> Json:
        """As it is now; what is under way is over after so many looks."""
        shown = dict(server)
        left = server.pop("left", self.slow) - 1
        if server["OS-EXT-STS:task_state"] and left:
            server["left"] = left
        elif server["status"] == "BUILD":
            server |= {"status": ON, "OS-EXT-STS:task_state": None, "updated": self.now()}
        elif server["OS-EXT-STS:task_state"]:
            after = server.pop("after")
            server |= {"status": after, "OS-EXT-STS:task_state": None, "updated": self.now()}
        return shown

    async def _server(
        self, request: Request, method: str, server: Json, rest: list[str]
    ) -> Response:
        match method, rest:
            case "GET", [*what]:
                return self._looked_at(server, what)
            case "DELETE", []:
                self.remove(server["id"])
                return Response(status_code=204)
            case _, ["metadata" | "os-interface", *_] if server["status"] == SHELVED:
                message = f"Cannot do it while it is in vm_state {SHELVED}"
                return JSONResponse({"conflictingRequest": {"message": message}}, 409)
            case "PUT" | "POST", ["metadata"]:
                before = server["metadata"] if method == "POST" else {}
                server["metadata"] = before | (await request.json())["metadata"]
                server["updated"] = self.now()
                return JSONResponse({"metadata": server["metadata"]})
            case "DELETE", ["metadata", key] if key in server["metadata"]:
                del server["metadata"][key]
                server["updated"] = self.now()
                return Response(status_code=204)
            case _, ["os-interface", *ports]:
                return await self._plug(request, server, ports)
            case "POST", ["remote-consoles"]:
                if not self.serial_url:
                    message = "Unavailable console type serial."
                    return JSONResponse({"badRequest": {"message": message}}, 400)
                (asked,) = (await request.json()).values()
                return JSONResponse({"remote_console": {**asked, "url": self.serial_url}})
            case "POST", ["action"]:
                version = request.headers.get("X-OpenStack-Nova-API-Version", "2.1")
                return self._act(server, await request.json(), float(version))
        return missing("/".join(rest))

    def _looked_at(self, server: Json, what: list[str]) -> Response:
        if what != ["os-volume_attachments"]:
            return (
                missing("/".join(what)) if what else JSONResponse({"server": self._shown(server)})
            )
        plugged = server["os-extended-volumes:volumes_attached"]
        found = [
            {"device": f"/dev/vd{chr(ord('a') + index)}", "volumeId": each["id"]}
            for index, each in enumerate(plugged)
        ]
        return JSONResponse({"volumeAttachments": found[::-1]})

    async def _plug(self, request: Request, server: Json, ports: list[str]) -> Response:
        """A port into a server, or those out of it."""
        for each in ports:
            self.ports[each]["device_id"] = ""
        if ports:
            return Response(status_code=202)
        port = (await request.json())["interfaceAttachment"]["port_id"]
        self.ports[port]["device_id"] = server["id"]
        return JSONResponse({"interfaceAttachment": {"port_id": port}})

    def _act(self, server: Json, action: Json, version: float) -> Response:
        ((name, how),) = action.items()
        if name == "os-getConsoleOutput":
            return JSONResponse({"output": self.consoles.get(server["id"], "")[-(100 << 10) :]})
        wanted = {
            "os-start": (OFF, ON),
            "os-stop": (ON, OFF),
            "reboot": (ON, ON),
            "shelve": (f"{ON} {OFF}", SHELVED),
            "unshelve": (SHELVED, ON),
            "resume": ("SUSPENDED", ON),
            "pause": (ON, "PAUSED"),
            "unpause": ("PAUSED", ON),
            "rebuild": (OFF, OFF),
            "rescue": (f"{ON} {OFF}", RESCUED),
            "unrescue": (RESCUED, ON),
        }
        if server["OS-EXT-STS:task_state"]:
            message = "Cannot do it while it is in task_state something"
            return JSONResponse({"conflictingRequest": {"message": message}}, 409)
        if name == "createImage":
            return self._keep(server, how)
        if name in wanted:
            before, after = wanted[name]
            if words := self._cannot(server, name, how, version):
                return JSONResponse({"badRequest": {"message": words}}, 400)
            if server["status"] not in before.split():
                message = f"Cannot '{name}' while it is in vm_state {server['status']}"
                return JSONResponse({"conflictingRequest": {"message": message}}, 409)
            if name == "rebuild" and server["image"]:
                server["image"] = {"id": how["imageRef"]}
            if name == "os-start" and self.failing_starts:
                self.failing_starts, after = self.failing_starts - 1, before
            if name in {"os-start", "reboot"}:
                self.consoles.pop(server["id"], None)  # each begins a new log
            self.acted.append(name)
            server |= {"OS-EXT-STS:task_state": name, "after": after, "updated": self.now()}
            server.pop("OS-EXT-STS:power_state", None)
        return Response(status_code=202)

    def _cannot(self, server: Json, name: str, how: Json, version: float) -> str:
        """Why a server is not made again of an image, or rescued by it; "" where it is."""
        if name not in {"rescue", "rebuild"}:
            return ""
        if not server.get("image") and version < (BY_VOLUME if name == "rescue" else OF_VOLUME):
            return f"Cannot {name} a volume-backed instance"
        image = how["rescue_image_ref" if name == "rescue" else "imageRef"]
        return "" if image in self.images else "no such image"

    def _said_of(self, image: str) -> Json:
        """What is of an image's data, and not of the image."""
        own = {"id", "name", "status", "image_type", "created_at", "min_disk", "visibility"}
        return {k: v for k, v in self.images.get(image, {}).items() if k not in own}

    def _keep(self, server: Json, how: Json) -> Response:
        """An image of a server, with the properties of that of which the server was made."""
        id_, base = str(uuid4()), (server["image"] or {}).get("id", "")
        self.images[id_] = {
            **self._said_of(base), **how["metadata"], "id": id_, "name": how["name"],
            "status": "saving", "image_type": "snapshot", "created_at": self.now(),
            "base_image_ref": base or None,
        }  # fmt: skip
        after = server["status"]
        server |= {"OS-EXT-STS:task_state": "image_uploading", "after": after}
        return JSONResponse({"image_id": id_}, 202)

    def remove(self, id_: str) -> None:
        """A server goes; ports that were there before it stay."""
        gone = self.servers.pop(id_)
        for group in self.server_groups.values():
            group["members"] = [each for each in group["members"] if each != id_]
        if self.ends is not None:
            self.ends(id_)
        for volume in [each for each in self.volumes.values() if each["server"] == id_]:
            is_held = any(
                each["volume_id"] == volume["id"] for each in self.volume_snapshots.values()
            )
            if volume["goes"] and not is_held:
                del self.volumes[volume["id"]]
        self.deleted[id_] = {**gone, "status": "DELETED", "updated": self.now()}
        for port in self.ports.values():
            if port["device_id"] == id_:
                port["device_id"] = ""

    async def _cinder(self, request: Request, path: str) -> Response:
        return await fake_cinder.answer(self, request, path)

    async def _neutron(self, request: Request, path: str) -> Response:
        return await Neutron(self).answer(request, path)

    async def _glance(self, request: Request, path: str) -> Response:
        return await fake_glance.answer(self, request, path)


def _password_of(request: Request) -> str:
    """By which the token of a call was given."""
    return request.headers.get("x-auth-token", "").rpartition("-")[0]
