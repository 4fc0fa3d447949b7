"""The administrator's list of what members may use (NOSPOON_GRANTS): YAML to `Grants`.

hosts:
  - {libvirt: qemu+ssh://root@kvm1/system, ssh: root@kvm1, address: 192.0.2.11}
networks: [198.51.100.0/24]
ports: [623, 161, 80-90]
bridges: [br-lan]
machines: ["lab-*"]
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from nospoon.clusterfile.document import Document
from nospoon.clusterfile.fields import Address, parse_libvirt, parse_network, parse_ports, parse_ssh
from nospoon.clusterfile.section import Section, Text, no_items
from nospoon.clusterfile.sections import translated
from nospoon.errors import SpecError
from nospoon.model.destinations import LibvirtUri, SshDestination
from nospoon.model.grants import GrantedHost, Grants, Network


def _ports(value: object) -> tuple[int, int]:
    """A port, or a range of ports."""
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_ports(f"{value}-{value}")
    return parse_ports(value)


class GrantedHostSection(Section):
    """A host that members may use."""

    libvirt: Annotated[Text, BeforeValidator(parse_libvirt)] = Field(description="As in `hosts`.")
    ssh: Annotated[Text, BeforeValidator(parse_ssh)] = Field("", description="As in `hosts`.")
    address: Address | None = Field(
        None, description="As in `hosts`: where tunnels of members' networks may lead."
    )


class GrantsFile(Section):
    """What members may use beyond the defaults."""

    hosts: list[GrantedHostSection] = Field(default_factory=no_items, description="Hosts.")
    networks: list[Annotated[Network, BeforeValidator(parse_network)]] = Field(
        default_factory=no_items, description="Networks of BMCs and guests."
    )
    ports: list[Annotated[Any, BeforeValidator(_ports)]] = Field(
        default_factory=no_items, description="Ports below 1024."
    )
    bridges: list[Annotated[Text, Field(min_length=1)]] = Field(
        default_factory=no_items,
        description="Bridges and interfaces of hosts, as `bridge` and `physnets` name them.",
    )
    machines: list[Annotated[Text, Field(min_length=1)]] = Field(
        default_factory=no_items,
        description="Machines that others made and members may adopt: names, or patterns of them.",
    )


def load_grants(text: str, *, file: str) -> Grants:
    """Raises `SpecError` with every problem in it."""
    document = Document(text, file)
    if document.problems:
        raise SpecError(document.problems)
    value = document.value if document.value is not None else {}
    try:
        given = GrantsFile.model_validate(value)
    except ValidationError as error:
        raise SpecError(list(translated(document, (), value, error))) from error
    networks: tuple[Network, ...] = tuple(given.networks)
    return Grants(
        tuple(map(_host, given.hosts)),
        networks,
        tuple(given.ports),
        frozenset(given.bridges),
        tuple(given.machines),
    )


def _host(given: GrantedHostSection) -> GrantedHost:
    ssh = SshDestination.parse(given.ssh) if given.ssh else None
    address = str(given.address) if given.address is not None else ""
    return GrantedHost(LibvirtUri.parse(given.libvirt), ssh, address)
