"""sushy-tools' configuration: a Python file that sets SUSHY_EMULATOR_… (sushy-emulator --config).

docs.openstack.org/sushy-tools/latest/user/dynamic-emulator.html. It is read, and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from nospoon.clusterfile.written import Said, name_of, write
from nospoon.errors import UsageError
from nospoon.importers import virtualbmc
from nospoon.importers.libvirt_uris import without_query
from nospoon.importers.source import Imported, Source
from nospoon.model.passwords import is_hash

PREFIX = "SUSHY_EMULATOR_"
EVERYWHERE, LOOPBACK, PORT = "0.0.0.0", "127.0.0.1", 8000  # noqa: S104  (written into a file)
NO_ADDRESS = "LISTEN_IP is not set: write what `sushy-emulator -i` had, 127.0.0.1 without -i"
"""Flask takes 127.0.0.1 where the tool has no address (flask, `Flask.run`), whatever its help says.
What imports the file does not know the command line, which often has it: metal3-dev-env's.
"""
SYSTEM = "qemu:///system"
FEATURES = ("full", "vmedia", "minimum")
NEEDLESS: Mapping[str, str] = {
    "BOOT_LOADER_MAP": "a machine keeps the firmware that it has",
    "IGNORE_BOOT_DEVICE": "a boot override is never ignored",
    "VMEDIA_VERIFY_SSL": "media servers' certificates are verified where a client sets "
    "VerifyCertificate",
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
    "DISABLE_POWER_OFF": "clients can switch machines off",
    "SECURE_BOOT_ENABLED_NVRAM": "secure boot is switched in a machine's own UEFI variables",
    "SECURE_BOOT_DISABLED_NVRAM": "secure boot is switched in a machine's own UEFI variables",
}
"""Settings without a place here, and why none is needed."""
LONGEST_NUMBER = 64
"""Bits of it."""
ALLOWED, BOTH = "ALLOWED_INSTANCES", ["ipmi", "redfish"]
TAKEN = frozenset({"LISTEN_IP", "LISTEN_PORT", "SSL_CERT", "SSL_KEY", "AUTH_FILE", "LIBVIRT_URI",
                   "OS_CLOUD", "ALLOWED_INSTANCES"})  # fmt: skip
REFUSED: Mapping[str, str] = {
    "IRONIC_CLOUD": "nodes of an Ironic are not adopted",
    "FAKE_DRIVER": "machines of the fake driver are not adopted: write hosts: {sim: {simulated: "
    "{machines: [NAME, …]}}}",
}
"""Machines that cannot be adopted."""
DECISIVE = TAKEN | REFUSED.keys()
"""What says which machines are served, where, and to which clients: never guessed."""


def read(source: Source) -> Imported:
    """A node for each allowed instance, or for each machine of the host."""
    left_out: list[str] = []
    settings = _settings(source, left_out)
    for name, why in REFUSED.items():
        if settings.get(name):
            raise UsageError(
                f"{source.file}: {PREFIX}{name}: {why}",
                hint=f"Machines of libvirt are ({PREFIX}LIBVIRT_URI), and of clouds (OS_CLOUD).",
            )
    features = settings.get("FEATURE_SET", "full")
    if features not in FEATURES:
        raise UsageError(
            f"{source.file}: {PREFIX}FEATURE_SET: expected {', '.join(FEATURES[:-1])} or "
            f"{FEATURES[-1]}, got {str(features)[:80]!r}"
        )
    for name in sorted(settings.keys() - TAKEN):
        needless = NEEDLESS.get(name)
        if settings[name] not in (None, False, {}, []):
            left_out.append(f"{PREFIX}{name}" + (f": {needless}" if needless else ""))
    bmc = _bmc(source, settings, left_out)
    allowed = _allowed(source, settings)
    if cloud := settings.get("OS_CLOUD"):
        hosts = _in_a_cloud(source, str(cloud))
        nodes: list[object] = list(_nodes(allowed, {"protocols": ["redfish"]}))
    else:
        hosts, nodes = _on_libvirt(source, settings, bmc, allowed, left_out)
    if not settings.get("LISTEN_IP") and source.beside is None:  # virtualbmc's says it, too
        bmc["address"] = Said(bmc["address"], NO_ADDRESS)
    sections = {
        "cluster": source.cluster,
        "hosts": hosts,
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


def _in_a_cloud(source: Source, cloud: str) -> dict[str, object]:
    """Hosts of sushy-emulator's driver of Nova, which goes before that of libvirt."""
    if source.beside is not None:
        raise UsageError(
            f"{source.file}: {PREFIX}OS_CLOUD: virtualbmc serves no servers of a cloud",
            hint="Import each of the two into a file of its own.",
        )
    return {"cloud": {"openstack": {"cloud": cloud}}}


def _on_libvirt(
    source: Source,
    settings: Mapping[str, object],
    bmc: dict[str, object],
    allowed: list[str],
    left_out: list[str],
) -> tuple[dict[str, object], list[object]]:
    given = str(settings.get("LIBVIRT_URI") or SYSTEM)
    uri, query = source.parsed(without_query, given, f"{PREFIX}LIBVIRT_URI")
    if query:
        left_out.append(f"{PREFIX}LIBVIRT_URI: ?{query}: see ssh_config(5)")
    if source.beside is None:
        hosts, nodes = {uri: "here"}, list(_nodes(allowed, {"protocols": ["redfish"]}))
    else:
        hosts, nodes = _beside(source.beside, uri, bmc, allowed, left_out)
    return {name: {"libvirt": each} for each, name in hosts.items()}, nodes


def _allowed(source: Source, settings: Mapping[str, object]) -> list[str]:
    """Names and UUIDs; none where the setting is not there, and every machine is meant."""
    if ALLOWED not in settings:
        return []
    given = settings[ALLOWED]
    listed = sorted(given, key=str) if isinstance(given, set) else given
    found = source.several(list(listed) if isinstance(listed, tuple) else listed, PREFIX + ALLOWED)
    if not found:
        raise UsageError(
            f"{source.file}: {PREFIX}{ALLOWED}: no instance is allowed: there is nothing to serve",
            hint="List instances, or drop the setting to serve every machine of the host.",
        )
    return [str(UUID(each)) if _is_uuid(each) else each for each in map(str, found)]


def _beside(
    virtualbmcs: Source, uri: str, bmc: dict[str, Any], allowed: list[str], left_out: list[str]
) -> tuple[dict[str, str], list[object]]:
    """Hosts and nodes, with the domains that virtualbmc serves too, by their names. A BMC that
    speaks both has the account that IPMI had.
    """
    found = virtualbmc.domains(virtualbmcs)
    address = virtualbmc.usual_address(found)
    if {address, bmc["address"]} == {"::", EVERYWHERE}:
        bmc["address"] = "::"
    hosts = virtualbmc.hosts_of([uri, *(each["libvirt_uri"] for each in found)])
    if "password_hash" in bmc:
        left_out.append(f"{PREFIX}AUTH_FILE: nodes of virtualbmc keep the account that it has")
    nodes: list[object] = []
    served = {
        each["domain_name"]
        for each in found
        if each["libvirt_uri"] == uri and virtualbmc.is_active(each)
    }
    for each in found:
        if not virtualbmc.is_active(each):
            left_out.append(f"{each['place']}: active = {each['active']}: no IPMI for it")
            continue
        node = virtualbmc.node(virtualbmcs, each, hosts, bmc["address"], left_out)
        listed = not allowed or each["domain_name"] in allowed
        both = listed and each["libvirt_uri"] == uri
        if both and node["bmc"].pop("address", ""):
            known = f"{each['place']}: address {each['address']}"
            left_out.append(f"{known}: IPMI answers where Redfish does, at {bmc['address']}")
        nodes.append({**node, "bmc": {**node["bmc"], "protocols": BOTH if both else ["ipmi"]}})
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


def _settings(source: Source, left_out: list[str]) -> dict[str, object]:
    try:
        module = ast.parse(source.text.removeprefix("\ufeff"))  # which Python skips in a file
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # too deep, too
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{source.file}{line}: expected assignments in Python") from error
    settings: dict[str, object] = {}
    unknown: dict[str, int] = {}
    for statement in module.body:
        for name, value, number in _assigned(statement):
            literal = _literal(value)
            if literal is None:
                settings.pop(name, None)
                unknown[name] = number
            else:
                unknown.pop(name, None)
                (settings[name],) = literal
    left_out += [
        f"{PREFIX}{name} (line {number}): not a literal"
        for name, number in unknown.items()
        if name not in DECISIVE
    ]
    if unknown.keys() & DECISIVE:
        wrong = [f"{PREFIX}{each} (line {unknown[each]})" for each in unknown if each in DECISIVE]
        raise UsageError(
            f"{source.file}: expected a literal, assigned once and under no condition: "
            f"{', '.join(wrong)}",
            hint="The file is read and not run: write the value into a copy of it.",
        )
    if not settings and not unknown:
        raise UsageError(f"{source.file}: expected settings {PREFIX}…, got none")
    return settings


def _literal(value: ast.expr | None) -> tuple[object] | None:
    """None also for a number that is too long to be printed (sys.int_info)."""
    constants = (
        each.value
        for each in (ast.walk(value) if value is not None else ())
        if isinstance(each, ast.Constant)
    )
    if any(isinstance(each, int) and each.bit_length() > LONGEST_NUMBER for each in constants):
        return None
    try:
        return None if value is None else (ast.literal_eval(value),)
    except (ValueError, TypeError, RecursionError):
        return None


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None, int]]:
    """Name of a setting, its value, and the line; None where what it is depends on more."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return  # names of their own
        case ast.Assign(targets=targets) if all(isinstance(each, ast.Name) for each in targets):
            value: ast.expr | None = statement.value
        case ast.AnnAssign(value=ast.expr() as given, target=ast.Name()):
            value = given
        case _:
            value = None
    for each in ast.walk(statement):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            name = each.id.removeprefix(PREFIX)
            if name != each.id:
                yield name, value, each.lineno


def _bmc(source: Source, settings: Mapping[str, object], left_out: list[str]) -> dict[str, object]:
    address = settings.get("LISTEN_IP") or (LOOPBACK if source.in_its_place else EVERYWHERE)
    bmc: dict[str, object] = {
        "address": source.address(str(address), f"{PREFIX}LISTEN_IP"),
        "redfish_port": source.positive(
            settings.get("LISTEN_PORT") or PORT, f"{PREFIX}LISTEN_PORT"
        ),
    }
    if settings.get("SSL_CERT") and settings.get("SSL_KEY"):
        bmc["tls"] = {"certificate": str(settings["SSL_CERT"]), "key": str(settings["SSL_KEY"])}
    if settings.get("AUTH_FILE"):
        bmc |= _account(source, str(settings["AUTH_FILE"]), left_out)
    else:
        bmc["redfish_auth"] = "none"
    return bmc


def _account(source: Source, path: str, left_out: list[str]) -> dict[str, object]:
    """The first user of an htpasswd file; a hash is enough for Redfish, which is all there was."""
    what, advice = f"{PREFIX}AUTH_FILE", "write `username` and `password` under `bmc`"
    try:
        usable, others = _users(source, path)
    except UsageError as error:
        if source.in_its_place:  # no one would know the password that is made up instead
            raise UsageError(f"{source.file}: {what}: {error.message}") from error
        left_out.append(f"{what}: {error.message}: {advice}")
        return {}
    name = next(iter(usable))
    left_out += [
        f"{what}: user {other}: add it with Redfish's AccountService"
        for other in sorted(others - {name})
    ]
    return {"username": name, "password_hash": usable[name]}


def _users(source: Source, path: str) -> tuple[dict[str, str], set[str]]:
    """Name -> bcrypt hash, and all names. Raises `UsageError` where no hash is there."""
    if source.read is None:
        raise UsageError(f"{path} was not read")
    lines = source.read(path).splitlines()
    pairs = (line.strip().partition(":") for line in lines if not line.startswith("#"))
    users = {name: text for name, colon, text in pairs if colon}
    usable = {name: text for name, text in users.items() if is_hash(text)}
    if not usable:
        raise UsageError(f"{path} has no bcrypt hash (`htpasswd -B`)")
    return usable, set(users)


def _nodes(
    allowed: Sequence[str], bmc: Mapping[str, object], where: Mapping[str, str] | None = None
) -> Iterator[object]:
    """`where`: the host, as a node says it."""
    if not allowed:
        yield Said(
            {"adopt": {"match": "*"}, **(where or {}), "bmc": bmc},
            "every machine, as no list of them is given",
        )
        return
    for each in allowed:
        name = (
            {} if _is_uuid(each) else {"name": name_of(each)}
        )  # one by its UUID has its machine's
        yield {"adopt": each, **name, **(where or {}), "bmc": bmc}
