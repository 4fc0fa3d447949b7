"""sushy-tools' configuration: a Python file that sets SUSHY_EMULATOR_… (sushy-emulator --config).

docs.openstack.org/sushy-tools/latest/user/dynamic-emulator.html. It is read, and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from nospoon.clusterfile.importers import virtualbmc
from nospoon.clusterfile.importers.written import Imported, Said, Source, name_of, write
from nospoon.errors import UsageError
from nospoon.model.passwords import is_hash

PREFIX = "SUSHY_EMULATOR_"
EVERYWHERE, PORT = "0.0.0.0", 8000  # noqa: S104  (what the tool itself listens on)
SYSTEM = "qemu:///system"
NEEDLESS: Mapping[str, str] = {
    "BOOT_LOADER_MAP": "a machine keeps the firmware that it has",
    "IGNORE_BOOT_DEVICE": "a boot override is never ignored",
    "VMEDIA_VERIFY_SSL": "certificates of media servers are verified, unless a client says else",
    "VMEDIA_DEVICES": "each machine has one CD drive",
    "STATE_DIR": "nospoon keeps its own state",
    "STORAGE_POOL": "media are kept in a pool of the cluster",
    "DEBUG": "see NOSPOON_LOG",
    "FEATURE_SET": "all features are on",
    "CHASSIS": "each machine has a Chassis of its own",
    "INDICATOR_LEDS": "clients set the LED of each machine",
    "STORAGE": "Storage shows the disks that a machine has",
    "DRIVES": "Storage shows the disks that a machine has",
    "VOLUMES": "an adopted machine is given no volumes",
}
"""Settings without a place here, and why none is needed."""
ALLOWED, BOTH = "ALLOWED_INSTANCES", ["ipmi", "redfish"]
TAKEN = frozenset({"LISTEN_IP", "LISTEN_PORT", "SSL_CERT", "SSL_KEY", "AUTH_FILE", "LIBVIRT_URI",
                   "ALLOWED_INSTANCES"})  # fmt: skip


def read(source: Source) -> Imported:
    """A node for each allowed instance, or for each machine of the host."""
    left_out: list[str] = []
    told = _settings(source, left_out)
    if told.get("OS_CLOUD"):
        raise UsageError(
            f"{source.file}: {PREFIX}OS_CLOUD: instances of a cloud are not adopted yet",
            hint="Machines of libvirt are (SUSHY_EMULATOR_LIBVIRT_URI).",
        )
    for name in sorted(told.keys() - TAKEN):
        why = NEEDLESS.get(name)
        if told[name] not in (None, False, {}, []):
            left_out.append(f"{PREFIX}{name}" + (f": {why}" if why else ""))
    uri = str(told.get("LIBVIRT_URI") or SYSTEM)
    bmc = _bmc(source, told, left_out)
    allowed = [
        str(each) for each in source.several(told.get("ALLOWED_INSTANCES"), f"{PREFIX}{ALLOWED}")
    ]
    if source.beside is None:
        hosts, nodes = {uri: "here"}, list(_nodes(allowed, {"protocols": ["redfish"]}))
    else:
        hosts, nodes = _beside(source.beside, uri, bmc, allowed, left_out)
    sections = {
        "cluster": source.cluster,
        "hosts": {name: {"libvirt": each} for each, name in hosts.items()},
        "bmc": bmc,
        "nodes": nodes,
    }
    stop = "sushy-emulator" if source.beside is None else "sushy-emulator and vbmcd"
    stop = f"Stop {stop} before `nospoon up`, which needs their ports."
    heading = [
        f"Made from {source.file} by `nospoon import --from sushy-tools`.",
        f"Systems keep their ids. {stop}",
    ]
    if left_out:
        heading += ["Not carried over:", *(f"  {each}" for each in left_out)]
    return Imported(write(sections, heading=heading), tuple(left_out))


def _beside(
    virtualbmcs: Source, uri: str, bmc: dict[str, Any], allowed: list[str], left_out: list[str]
) -> tuple[dict[str, str], list[Any]]:
    """Hosts and nodes, with the domains that virtualbmc serves too, by their names. A BMC that
    speaks both has the account that IPMI had.
    """
    found = virtualbmc.domains(virtualbmcs)
    address = virtualbmc.usual_address(found)
    if {address, bmc["address"]} == {"::", EVERYWHERE}:
        bmc["address"] = "::"
    elif address != bmc["address"]:
        left_out.append(f"{virtualbmcs.file}: address {address}: BMCs share {bmc['address']}")
    hosts = virtualbmc.hosts_of([uri, *(each["libvirt_uri"] for each in found)])
    if "password_hash" in bmc:
        left_out.append(f"{PREFIX}AUTH_FILE: nodes of virtualbmc keep the account that it has")
    nodes: list[Any] = []
    for each in found:
        node = virtualbmc.node(virtualbmcs, each, hosts, address, left_out)
        listed = not allowed or each["domain_name"] in allowed
        both = listed and each["libvirt_uri"] == uri
        nodes.append({**node, "bmc": {**node["bmc"], "protocols": BOTH if both else ["ipmi"]}})
    served = {each["domain_name"] for each in found if each["libvirt_uri"] == uri}
    rest = [each for each in allowed if each not in served]
    left_out += [
        f"{PREFIX}{ALLOWED}: {each}: if virtualbmc serves it, write this UUID at `adopt` of its "
        "node, protocols [ipmi, redfish], and drop the other node"
        for each in rest
        if _is_uuid(each)
    ]
    if rest or not allowed:
        where = {} if len(hosts) == 1 else {"host": hosts[uri]}
        nodes += _nodes(rest, {"protocols": ["redfish"]}, where)
    return hosts, nodes


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _settings(source: Source, left_out: list[str]) -> dict[str, Any]:
    try:
        module = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # too deep, too
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{source.file}{line}: expected assignments in Python") from error
    told: dict[str, Any] = {}
    for statement in module.body:
        if not isinstance(statement, ast.Assign):
            continue
        names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
        for name in (each.removeprefix(PREFIX) for each in names if each.startswith(PREFIX)):
            try:
                told[name] = ast.literal_eval(statement.value)
            except (ValueError, TypeError, RecursionError):
                left_out.append(f"{PREFIX}{name} (line {statement.lineno}): not a literal")
    if not told:
        raise UsageError(f"{source.file}: expected settings {PREFIX}…, got none")
    return told


def _bmc(source: Source, told: Mapping[str, Any], left_out: list[str]) -> dict[str, Any]:
    bmc: dict[str, Any] = {
        "address": str(told.get("LISTEN_IP") or EVERYWHERE),
        "redfish_port": told.get("LISTEN_PORT") or PORT,
    }
    if told.get("SSL_CERT") and told.get("SSL_KEY"):
        bmc["tls"] = {"certificate": str(told["SSL_CERT"]), "key": str(told["SSL_KEY"])}
    if told.get("AUTH_FILE"):
        bmc |= _account(source, str(told["AUTH_FILE"]), left_out)
    else:
        bmc["redfish_auth"] = "none"
    return bmc


def _account(source: Source, path: str, left_out: list[str]) -> dict[str, Any]:
    """The first user of an htpasswd file; a hash is enough for Redfish, which is all there was."""
    what, mend = f"{PREFIX}AUTH_FILE", "write `username` and `password` under `bmc`"
    if source.read is None:
        left_out.append(f"{what}: {path} was not read: {mend}")
        return {}
    try:
        lines = source.read(path).splitlines()
    except UsageError as error:
        left_out.append(f"{what}: {error.message}: {mend}")
        return {}
    pairs = (line.strip().partition(":") for line in lines if not line.startswith("#"))
    users = {name: text for name, colon, text in pairs if colon}
    usable = {name: text for name, text in users.items() if is_hash(text)}
    if not usable:
        left_out.append(f"{what}: {path} has no bcrypt hash (`htpasswd -B`): {mend}")
        return {}
    name = next(iter(usable))
    left_out += [
        f"{what}: user {other}: add it with Redfish's AccountService"
        for other in sorted(users.keys() - {name})
    ]
    return {"username": name, "password_hash": usable[name]}


def _nodes(
    allowed: Sequence[str], bmc: Mapping[str, Any], where: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """`where`: the host, as a node says it."""
    if not allowed:
        yield Said(
            {"adopt": {"match": "*"}, **(where or {}), "bmc": bmc},
            "every machine, as no list of them is given",
        )
        return
    for each in allowed:
        yield {"adopt": each, "name": name_of(each), **(where or {}), "bmc": bmc}
