"""How machines of a simulated host behave, and what runs on them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from nospoon.clusterfile.fields import Address, Duration, Label, Memory, Url
from nospoon.clusterfile.nearest import nearest
from nospoon.clusterfile.section import (
    Flag,
    Number,
    Section,
    Text,
    Unique,
    Whole,
    each_once,
    few,
    no_items,
    parse_text,
)
from nospoon.protocols.agent.commands import NAMES, TIMED


def switched(value: object) -> object:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class OrSwitch:
    """JSON Schema of a section for which `true` may stand."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> object:
        return {"anyOf": [{"type": "boolean"}, *handler(core)["anyOf"]]}


def _one_of(names: Collection[str]) -> Callable[[str], str]:
    """Checks what a command or step of an agent is called."""

    def check(name: str) -> str:
        if name in names:
            return name
        near = nearest(name, names)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(names))}"
        what = "takes no time" if name in NAMES else "is not a command or step of a deploy agent"
        raise ValueError(f"{name!r} {what}; {hint}")

    return check


MOST_CONSOLE = 64 << 10
"""Bytes that a guest says at each boot: a Linux with all its services says less."""


def _said(value: object) -> object:
    size = len(parse_text(value).encode())
    if size > MOST_CONSOLE:
        raise ValueError(f"expected at most {MOST_CONSOLE} bytes, got {size}")
    return value


Failure = Annotated[Text, Field(min_length=1, max_length=4096)]
Part = Annotated[Number, Field(ge=0, le=1)]


class AgentsSection(Section):
    """Deploy agents of Ironic on machines that boot from the network or a medium; `true`: with all
    defaults. They take the API's address from a medium's kernel parameters, from `boot_script` or
    from `api`.
    """

    api: Url = Field(
        "", description="URL of Ironic's API, for agents that get it from nothing else."
    )
    boot_script: Url = Field(
        "", description="URL of the iPXE script (`…/boot.ipxe`) that a DHCP server would name."
    )
    address: Address = Field(
        IPv4Address("127.0.0.1"),
        description="Address where all of them answer the conductor; default 127.0.0.1.",
    )
    port: Annotated[Whole, Field(ge=0, le=65535)] = Field(
        0, description="Port where they answer; default: a free one."
    )
    tls: Flag = Field(
        default=True,
        description="Answer over TLS, with a certificate that heartbeats carry; default yes.",
    )
    command: Duration = Field(
        0.0, description="Time that a clean, deploy or other long command takes; default none."
    )
    commands: Annotated[
        dict[Annotated[Text, AfterValidator(_one_of(TIMED))], Duration], few(len(NAMES))
    ] = Field(
        default_factory=dict,
        description="Command or step (`write_image`) -> time that it takes instead.",
    )
    failing: Annotated[
        dict[Annotated[Text, AfterValidator(_one_of(NAMES))], Failure], few(len(NAMES))
    ] = Field(default_factory=dict, description="Command or step -> the error that it ends with.")
    failures: Part = Field(0.0, description="The part of commands that fail, from 0 to 1.")
    silent: Part = Field(
        0.0, description="Fraction of boots after which no agent reports, from 0 to 1."
    )
    heartbeat: Duration = Field(
        0.0, description="Time between heartbeats; default: as the conductor asks."
    )


class SimulatedSection(Section):
    """How the machines of a simulated host behave. Hosts of one name share their machines."""

    power_on: Duration = Field(0.0, description="Time that a power-on takes; default none.")
    power_off: Duration = Field(0.0, description="Time that a power-off takes; default none.")
    shut_down: Duration = Field(
        0.0, description="From a soft power-off to the guest's end; default none."
    )
    boot: Duration = Field(
        0.0, description="From power-on until the guest says `console`; default none."
    )
    console: Annotated[str, BeforeValidator(_said)] = Field(
        "", description="What the guest says when it has booted; at most 64 KiB."
    )
    power_failures: Part = Field(
        0.0, description="The part of power commands that fail, from 0 to 1; default 0."
    )
    cpus: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        0, description="CPUs of the host, of which it has no more than that; default: no limit."
    )
    memory: Memory | None = Field(
        None, description="Memory of the host, the same way; default: no limit."
    )
    machines: Annotated[
        list[Label], Field(max_length=10_000), AfterValidator(each_once), Unique()
    ] = Field(
        default_factory=no_items,
        description="Names of machines there that are not nospoon's, for `adopt`; default none.",
    )
    agents: Annotated[AgentsSection | None, BeforeValidator(switched), OrSwitch()] = Field(
        None, description="Run deploy agents of Ironic; default no."
    )
