"""Neutron of a cloud in memory: networks, subnets, ports, floating IPs, routers, trunks, quotas."""

from __future__ import annotations

from typing import Protocol
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nospoon.testing.fake_cinder import Json

PROJECT = "0" * 32
USUAL_ADDRESS = "192.0.2.9"
"""Of ports for which none is chosen."""
KINDS = frozenset({"networks", "subnets", "ports", "floatingips", "routers", "trunks"})
QUOTAS = ("network", "subnet", "port", "trunk", "router", "floatingip")


class Cloud(Protocol):
    """What it needs of its cloud."""

    url: str
    servers: dict[str, Json]
    networks: dict[str, Json]
    subnets: dict[str, Json]
    ports: dict[str, Json]
    floatingips: dict[str, Json]
    routers: dict[str, Json]
    trunks: dict[str, Json]
    has_trunks: bool
    has_routers: bool
    quotas: dict[str, int]


def missing(path: str) -> Response:
    return JSONResponse({"itemNotFound": {"message": f"{path} is not there"}}, 404)


class Neutron:
    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def answer(self, request: Request, path: str) -> Response:
        """To one call."""
        if path.strip("/") in {"", "v2.0"}:
            links = [{"rel": "self", "href": f"{self._cloud.url}/network/v2.0"}]
            return JSONResponse({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})
        if (trunk := await self._trunk(request, path)) is not None:
            return trunk
        if words := await self._refused(request, path):
            return JSONResponse({"NeutronError": {"message": words}}, 409)
        match request.method, path.removeprefix("/v2.0").strip("/").split("/"):
            case "GET", [kind] if kind in KINDS:
                return JSONResponse({kind: self._listed(kind, request)})
            case "POST", [kind]:
                ((name, body),) = (await request.json()).items()
                id_ = str(uuid4())
                all_usual: dict[str, Json] = {
                    "networks": {"subnets": [], "mtu": 1500, "project_id": PROJECT},
                    "ports": {"device_id": "", "fixed_ips": [{"ip_address": USUAL_ADDRESS}]},
                    "floatingips": {"floating_ip_address": "203.0.113.7"},
                }
                made = {"id": id_, **all_usual.get(kind, {}), **body}
                getattr(self._cloud, kind)[id_] = made
                if kind == "subnets":
                    self._cloud.networks[body["network_id"]]["subnets"].append(id_)
                return JSONResponse({name: made}, 201)
            case "PUT", ["routers", id_, "add_router_interface"]:
                return self._lead(id_, (await request.json())["subnet_id"])
            case "PUT", ["routers", id_, "remove_router_interface"]:
                return self._unlead(id_, (await request.json())["port_id"])
            case "PUT", [kind, id_] if id_ in getattr(self._cloud, kind):
                ((name, body),) = (await request.json()).items()
                getattr(self._cloud, kind)[id_] |= body
                return JSONResponse({name: getattr(self._cloud, kind)[id_]})
            case "DELETE", [kind, id_] if id_ in getattr(self._cloud, kind):
                return self._delete(kind, id_)
        return missing(path)

    async def _refused(self, request: Request, path: str) -> str:
        """Why a port cannot be as it is asked for; "" where it can."""
        if request.method == "POST" and path.endswith("/ports") and await self._has_mac(request):
            return "Unable to complete operation: the MAC address is in use"
        if await self._is_taken(request, path):
            return "IP address is already allocated in subnet"
        return ""

    async def _has_mac(self, request: Request) -> bool:
        """Whether a port of its network has the MAC of one that is to be made."""
        port: Json = (await request.json())["port"]
        wanted = port["network_id"], port.get("mac_address")
        there = (
            (each["network_id"], each.get("mac_address")) for each in self._cloud.ports.values()
        )
        return wanted in there

    async def _is_taken(self, request: Request, path: str) -> bool:
        """Whether an address is chosen for a port that another one of its network has."""
        _, _, kind, *id_ = path.split("/")
        if kind != "ports" or request.method not in {"POST", "PUT"}:
            return False
        before: Json = self._cloud.ports.get(id_[0], {}) if id_ else {}
        port = {"id": "", "fixed_ips": [], **before, **(await request.json())["port"]}
        chosen = {each.get("ip_address") for each in port["fixed_ips"]} - {None, USUAL_ADDRESS}
        given = {
            each.get("ip_address")
            for other in self._cloud.ports.values()
            if other["network_id"] == port["network_id"] and other["id"] != port["id"]
            for each in other["fixed_ips"]
        }
        return not chosen.isdisjoint(given)

    def _listed(self, kind: str, request: Request) -> list[Json]:
        found: list[Json] = list(getattr(self._cloud, kind).values())
        for name in ("id", "mac_address", "network_id", "device_id"):
            if (wanted := request.query_params.get(name)) is not None:
                found = [each for each in found if each[name] == wanted]
        if kind == "floatingips":
            return [each | {"router_id": self._router_of(each)} for each in found]
        return found

    def _unlead(self, router: str, port: str) -> Response:
        network = self._cloud.ports.get(port, {"network_id": ""})["network_id"]
        led = [each for each in self._cloud.floatingips.values() if self._router_of(each) == router]
        if network in {self._cloud.ports[each["port_id"]]["network_id"] for each in led}:
            message = "it is required by one or more floating IPs"
            return JSONResponse({"NeutronError": {"message": message}}, 409)
        return self._delete("ports", port) if port in self._cloud.ports else missing(port)

    def _router_of(self, floating_ip: Json) -> str | None:
        """By which it leads to its port."""
        port = self._cloud.ports.get(floating_ip.get("port_id") or "", {"network_id": ""})
        return next(
            (
                each["device_id"]
                for each in self._cloud.ports.values()
                if each["device_id"] in self._cloud.routers
                and each["network_id"] == port["network_id"]
            ),
            None,
        )

    def _lead(self, router: str, subnet: str) -> Response:
        if any(
            each["device_id"] == router and each["fixed_ips"][0]["subnet_id"] == subnet
            for each in self._cloud.ports.values()
        ):
            message = f"Router already has a port on subnet {subnet}"
            return JSONResponse({"NeutronError": {"message": message}}, 400)
        routers = self._cloud.routers
        if any(
            each["device_id"] in routers and each["fixed_ips"][0]["subnet_id"] == subnet
            for each in self._cloud.ports.values()
        ):
            message = "IP address already allocated in subnet"
            return JSONResponse({"NeutronError": {"message": message}}, 409)
        port = str(uuid4())
        self._cloud.ports[port] = {
            "id": port, "device_id": router,
            "network_id": self._cloud.subnets[subnet]["network_id"],
            "mac_address": "fa:16:3e:00:00:01", "fixed_ips": [{"subnet_id": subnet}],
        }  # fmt: skip
        return JSONResponse({"port_id": port})

    async def _trunk(self, request: Request, path: str) -> Response | None:
        """What is particular to trunks, and quotas; None for anything else."""
        match request.method, path.removeprefix("/v2.0").strip("/").split("/"):
            case _, ["trunks", *_] if not self._cloud.has_trunks:
                return missing(path)
            case _, ["routers" | "floatingips", *_] if not self._cloud.has_routers:
                return missing(path)
            case "GET", ["quotas", _, "details.json"]:
                limits = {**dict.fromkeys(QUOTAS, -1), **self._cloud.quotas}
                quota = {
                    name: {
                        "limit": most,
                        "used": len(getattr(self._cloud, f"{name}s")),
                        "reserved": 0,
                    }
                    for name, most in limits.items()
                }
                return JSONResponse({"quota": quota})
            case "GET", ["extensions"]:
                there = {"trunk": self._cloud.has_trunks, "router": self._cloud.has_routers}
                found = [{"alias": name} for name, is_there in there.items() if is_there]
                return JSONResponse({"extensions": found})
            case "GET", ["extensions", "trunk"] if self._cloud.has_trunks:
                return JSONResponse({"extension": {"alias": "trunk"}})
            case "POST", ["trunks"] if self._is_bound((await request.json())["trunk"]):
                message = "Port is currently in use and is not eligible for use as a parent port"
                return JSONResponse({"NeutronError": {"message": message}}, 409)
            case "PUT", ["trunks", id_, "add_subports" | "remove_subports" as how]:
                return self._carry(id_, how, (await request.json())["sub_ports"])
        return None

    def _is_bound(self, trunk: Json) -> bool:
        return self._cloud.ports[trunk["port_id"]]["device_id"] in self._cloud.servers

    def _carry(self, trunk: str, how: str, sub_ports: list[Json]) -> Response:
        """As Neutron's agents for Open vSwitch do, of a port that is in use, too."""
        there: list[Json] = self._cloud.trunks[trunk]["sub_ports"]
        ids = {each["port_id"] for each in sub_ports}
        if how == "remove_subports":
            self._cloud.trunks[trunk]["sub_ports"] = [e for e in there if e["port_id"] not in ids]
            return JSONResponse(self._cloud.trunks[trunk])
        known = {each["segmentation_id"] for each in there}
        if not known.isdisjoint(each["segmentation_id"] for each in sub_ports):
            message = "Segmentation ID already in use"
            return JSONResponse({"NeutronError": {"message": message}}, 409)
        there.extend(sub_ports)
        return JSONResponse(self._cloud.trunks[trunk])

    def _delete(self, kind: str, id_: str) -> Response:
        in_trunks = {
            port
            for each in self._cloud.trunks.values()
            for port in (each["port_id"], *(sub["port_id"] for sub in each["sub_ports"]))
        }
        if kind == "ports" and id_ in in_trunks:
            message = f"Port {id_} is currently a parent or a sub-port of a trunk"
            return JSONResponse({"NeutronError": {"message": message}}, 409)
        if kind == "trunks" and self._is_bound(self._cloud.trunks[id_]):
            message = f"Trunk {id_} is currently in use"
            return JSONResponse({"NeutronError": {"message": message}}, 409)
        in_use = any(each["device_id"] == id_ for each in self._cloud.ports.values())
        if kind == "routers" and in_use:
            return JSONResponse({"NeutronError": {"message": "Router still has ports"}}, 409)
        if kind == "networks":
            if any(each["network_id"] == id_ for each in self._cloud.ports.values()):
                message = "There are one or more ports still in use on the network"
                return JSONResponse({"NeutronError": {"message": message}}, 409)
            for subnet in self._cloud.networks[id_]["subnets"]:
                self._cloud.subnets.pop(subnet, None)
        for each in self._cloud.floatingips.values():
            if kind == "ports" and each["port_id"] == id_:
                each["port_id"] = None
        del getattr(self._cloud, kind)[id_]
        return Response(status_code=204)
