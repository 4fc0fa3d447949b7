"""virtualbmc's configuration: a directory a domain, with a file `config` in it.

docs.openstack.org/virtualbmc/latest/user/index.html. Its domains are there: they are adopted.
"""

from __future__ import annotations

import configparser
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from nospoon.clusterfile.written import name_of, write
from nospoon.errors import UsageError
from nospoon.importers.accounts import account
from nospoon.importers.libvirt_uris import without_query
from nospoon.importers.source import Imported, Source

SECTION = "VirtualBMC"
USUAL: Mapping[str, str] = {
    "username": "admin", "password": "password", "address": "::", "port": "623",
    "libvirt_uri": "qemu:///system", "active": "False",
}  # fmt: skip
"""What `vbmc add` gives a BMC of which nothing else is said."""
MOST_LINE = 8192
"""Characters: configparser takes time in proportion to the square of a line."""
SASL = ("libvirt_sasl_username", "libvirt_sasl_password")


def read(source: Source) -> Imported:
    """A node for each domain, with its BMC's port and account."""
    left_out: list[str] = []
    found = domains(source)
    address = usual_address(found)
    hosts = hosts_of(each["libvirt_uri"] for each in found)
    nodes = []
    for each in found:
        made = node(source, each, hosts, address, left_out)
        if is_active(each):
            nodes.append(made)
        else:
            left_out.append(_inactive(each, made))
    sections = {
        "cluster": source.cluster,
        "hosts": {name: {"libvirt": uri} for uri, name in hosts.items()},
        "bmc": {"address": address},
        "nodes": nodes,
    }
    heading = [
        f"Made from {source.file} by `nospoon import --from virtualbmc`.",
        "Stop vbmcd before `nospoon up`: it has these ports. For Redfish, add it to `protocols`.",
    ]
    if left_out:
        heading += ["Not carried over:", *(f"  {each}" for each in left_out)]
    return Imported(write(sections, heading=heading), tuple(left_out))


def domains(source: Source) -> list[dict[str, str]]:
    """Settings of each. Raises `UsageError` where there are none, or two that are called alike."""
    found = [_settings(source, place, text) for place, text in sorted(source.files.items())]
    if not found:
        raise UsageError(f"{source.file}: expected DOMAIN/config files, got none")
    source.apart((each["domain_name"] for each in found), "domains")
    return found


def is_active(settings: Mapping[str, str]) -> bool:
    """Whether vbmcd serves it: no other word than this one is (`str2bool` in virtualbmc/utils.py,
    whose errors `_vbmc_enabled` in manager.py takes for no).
    """
    return settings["active"].lower() == "true"


def settings_of(text: str, *, place: str) -> dict[str, str] | None:
    """A configuration; None without its section. Raises `configparser.Error`.

    virtualbmc writes `%%` for `%` in values (configparser.BasicInterpolation).
    """
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MOST_LINE:
            raise configparser.MissingSectionHeaderError(place, number, line[:MOST_LINE])
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text, source=place)
    if SECTION not in parser:
        return None
    given = {name: value.replace("%%", "%") for name, value in parser[SECTION].items()}
    return {**USUAL, **given}


def text_of(settings: Mapping[str, str]) -> str:
    """The configuration that virtualbmc and `settings_of` read so."""
    pairs = ((name, value.replace("%", "%%")) for name, value in settings.items())
    return f"[{SECTION}]\n" + "".join(f"{name} = {value}\n" for name, value in pairs)


def _inactive(settings: Mapping[str, str], made: Mapping[str, object]) -> str:
    line = write({"nodes": [made]}, heading=()).splitlines()[-1].strip()
    return f"{settings['place']}: active = {settings['active']}: to serve it, add to nodes: {line}"


def usual_address(found: Iterable[Mapping[str, str]]) -> str:
    """That of most BMCs."""
    return Counter(each["address"] for each in found).most_common(1)[0][0]


def _settings(source: Source, place: str, text: str) -> dict[str, str]:
    try:
        settings = settings_of(text, place=place)
    except configparser.Error as error:
        line = getattr(error, "lineno", None)
        where = f"{source.file}/{place}" + (f":{line}" if line else "")
        raise UsageError(f"{where}: expected a configuration of virtualbmc (INI)") from error
    if settings is None:
        raise UsageError(f"{source.file}/{place}: expected a section [{SECTION}], got none")
    settings.setdefault("domain_name", place.partition("/")[0])
    uri, query = source.parsed(without_query, settings["libvirt_uri"], f"{place}: libvirt_uri")
    address = source.address(settings["address"], f"{place}: address")
    return {**settings, "address": address, "place": place, "libvirt_uri": uri, "query": query}


def hosts_of(uris: Iterable[str]) -> dict[str, str]:
    """URI -> name of the host: `here`, or that in the URI."""
    hosts: dict[str, str] = {}
    taken: dict[str, int] = {}
    for uri in dict.fromkeys(uris):
        machine = urlsplit(uri).hostname
        path = urlsplit(uri).path.strip("/")
        wanted = name_of(machine) if machine else ("here" if path == "system" else name_of(path))
        name = wanted
        while name in taken:
            taken[wanted] += 1
            name = f"{wanted}-{taken[wanted]}"
        taken[name] = 1
        hosts[uri] = name
    return hosts


def node(
    source: Source,
    settings: Mapping[str, str],
    hosts: Mapping[str, str],
    address: str,
    left_out: list[str],
) -> dict[str, Any]:
    """The node of a domain. `hosts`: URI -> name; `address`: that of the cluster's BMCs."""
    place = settings["place"]
    if settings["query"]:
        left_out.append(f"{place}: libvirt_uri: ?{settings['query']}: see ssh_config(5)")
    left_out += [
        f"{place}: {name}" for name in SASL if settings.get(name) not in (None, "", "None")
    ]
    given = {name: (f"{place}: {name}", settings[name]) for name in ("username", "password")}
    bmc = {
        "protocols": ["ipmi"],
        "port": source.positive(settings["port"], f"{place}: port"),
        **({"address": settings["address"]} if settings["address"] != address else {}),
        **account(given, left_out),
    }
    made = {"adopt": settings["domain_name"], "name": name_of(settings["domain_name"]), "bmc": bmc}
    return made if len(hosts) == 1 else {**made, "host": hosts[settings["libvirt_uri"]]}
