"""Sections about BMCs: where they answer, what they speak, and who may log in."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from nospoon.clusterfile.fields import Address, Pool, Ports
from nospoon.clusterfile.section import (
    Flag,
    OneOrMore,
    Section,
    Text,
    Whole,
    listed,
    parse_text,
    shown,
)
from nospoon.model.cluster import BmcProtocol
from nospoon.model.passwords import BCRYPT, LARGEST_COST, LEAST_COST

MAX_USER_NAME, MAX_PASSWORD = 16, 20
"""Bytes, by IPMI 2.0 §22.28 and §22.30."""


def _account_name(value: object) -> object:
    """IPMI 2.0 §22.28: 16 bytes; RFC 7617 §2: no colon."""
    name = parse_text(value)
    if not 1 <= len(name.encode()) <= MAX_USER_NAME or ":" in name:
        raise ValueError(
            f"expected a user name of 1 to {MAX_USER_NAME} bytes without colons, got {shown(name)}"
        )
    return value


def _password(value: object) -> object:
    """IPMI 2.0 §22.30: 20 bytes. The message does not repeat it."""
    if not isinstance(value, str):
        raise ValueError("expected a password of 1 to 20 bytes, as text. Put it in quotes")
    if not 1 <= (length := len(value.encode())) <= MAX_PASSWORD:
        raise ValueError(f"expected a password of 1 to {MAX_PASSWORD} bytes, got {length}")
    return _refuse_variable(value)


def _key(value: object) -> object:
    """IPMI 2.0 §13.31: 20 bytes, here in hexadecimal digits. The message does not repeat it."""
    digits = value.lower() if isinstance(value, str) else ""
    if not 1 <= len(digits) <= 40 or len(digits) % 2 or not set(digits) <= set("0123456789abcdef"):
        raise ValueError(
            "expected a key of 1 to 20 bytes, two hexadecimal digits each. Put it in quotes"
        )
    return digits.ljust(40, "0")


def _pass_phrase(value: object) -> object:
    """RFC 3414 §11.2: at least 8 bytes. The message does not repeat it."""
    if not isinstance(value, str):
        raise ValueError("expected a secret of 8 to 64 bytes, as text. Put it in quotes")
    if not 8 <= (length := len(value.encode())) <= 64:
        raise ValueError(f"expected a secret of 8 to 64 bytes, got {length}")
    return _refuse_variable(value)


def _refuse_variable(value: str) -> str:
    """A variable of a shell or template, which someone else was to fill in."""
    if _VARIABLE.match(value):
        raise ValueError(
            "expected a password, got the name of a variable: nospoon fills in none. Write the "
            "file with them filled in (envsubst), or leave the password out to have one made"
        )
    return value


_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}\Z|\{\{.*\}\}\Z")


AccountName = Annotated[
    str,
    BeforeValidator(_account_name),
    WithJsonSchema({"type": "string", "pattern": "^[^:]{1,16}$"}),
]
Password = Annotated[
    str,
    BeforeValidator(_password),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 20}),
]
Key = Annotated[
    str,
    BeforeValidator(_key),
    WithJsonSchema({"type": "string", "pattern": "^([0-9a-fA-F]{2}){1,20}$"}),
]
PassPhrase = Annotated[
    str,
    BeforeValidator(_pass_phrase),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 64}),
]


def _password_hash(value: object) -> str:
    found = BCRYPT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("expected a bcrypt hash as `htpasswd -nB USER` prints it ($2y$…)")
    if not LEAST_COST <= int(found["cost"]) <= LARGEST_COST:
        raise ValueError(
            f"expected a bcrypt hash of cost {LEAST_COST} to {LARGEST_COST}, got {found['cost']}"
        )
    return found.group()


PasswordHash = Annotated[
    str,
    BeforeValidator(_password_hash),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\$2[aby]\$(0[4-9]|1[0-2])\$[./A-Za-z0-9]{53}$"}
    ),
]


class NodeBmcSection(Section):
    """A node's BMC; a bare list of protocols is short for `{protocols: [...]}`."""

    protocols: Annotated[list[BmcProtocol], BeforeValidator(listed), OneOrMore()] | None = Field(
        None,
        max_length=16,
        description="What it speaks: `ipmi`, `redfish`; `pdu`: an outlet feeds it; "
        "default: the first two.",
    )
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = Field(
        None, description="IPMI port on its address; default: a free one of `ports`."
    )
    address: Address | None = Field(
        None, description="Address on which it answers, with a `port`; default: the cluster's."
    )
    username: AccountName | None = Field(
        None, description="Fixed user name; default: the cluster's."
    )
    password: Password | None = Field(
        None, description="Fixed password; default: random, per node."
    )
    k_g: Key | None = Field(
        None,
        description="Key of the BMC for IPMI (K_G), in hexadecimal digits; default: the cluster's.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"protocols": value} if isinstance(value, list | str) else value


class PduSection(Section):
    """PDUs that feed the nodes whose `bmc` has `pdu`."""

    vendor: Literal["apc"] = Field("apc", description="Whose SNMP objects they have.")
    outlets: Annotated[Whole, Field(ge=1, le=255)] = Field(
        24, description="Outlets of a PDU, one a node; nodes keep those they have."
    )
    ports: Ports = Field(
        (16230, 17229),
        description="SNMP ports, one a PDU; with `pool`, port 161 of its first addresses instead.",
    )
    secret: PassPhrase | None = Field(
        None,
        description="Both pass phrases of SNMP v3, from which the community of v1 and v2c is "
        "derived; default: one a PDU.",
    )
    v2c: Flag = Field(
        default=True,
        description="Whether SNMP v1 and v2c are answered, too, whose community anybody may read "
        "on the way.",
    )


class TlsSection(Section):
    """A certificate of yours for Redfish, in place of those that sign themselves."""

    certificate: Text = Field(
        description="Certificate in PEM, or a chain with its own first: a path beside the file."
    )
    key: Text = Field(description="Its key in PEM, without a pass phrase: a path beside the file.")


def _tls_form(value: object) -> str:
    return "given" if isinstance(value, dict | TlsSection) else "own"


Tls = Annotated[
    Annotated[Flag, Tag("own")] | Annotated[TlsSection, Tag("given")], Discriminator(_tls_form)
]
"""Whether, with certificates of its own, or by one that is given; yes and no are short for it."""


class BmcSection(Section):
    """Where BMCs answer, and who may log in."""

    address: Address = Field(
        IPv4Address("127.0.0.1"),
        description="Address on which all BMCs answer, a port each; IPv4 or IPv6.",
    )
    ports: Ports = Field(
        (6230, 16229),
        description="IPMI ports, one a node (`6230-6330`); nodes keep those they have.",
    )
    redfish_port: Annotated[Whole, Field(ge=1, le=65535)] = Field(
        8000,
        description="TCP port of the Redfish service for all nodes; default: 8000, or the next one "
        "that is free at the first `up`.",
    )
    redfish_auth: Literal["required", "none"] = Field(
        "required",
        description="`none`: Redfish answers without a login, to everyone who can reach it.",
    )
    tls: Tls = Field(
        default=False,
        description="Redfish over TLS: true, with a certificate of its own for each address, or a "
        "certificate and its key; default no.",
    )
    pool: Pool | None = Field(
        None, description="An address a node from this network, IPMI on port 623 of each."
    )
    username: AccountName = Field(
        "admin", description="User name for all nodes (IPMI: at most 16 characters)."
    )
    password: Password | None = Field(
        None, description="Password for all nodes; default: random, one a node."
    )
    password_hash: PasswordHash | None = Field(
        None,
        description="In place of `password` where only its bcrypt hash is known, as in an htpasswd "
        "file; for nodes whose BMC speaks Redfish alone.",
    )
    k_g: Key | None = Field(
        None, description="Key of all BMCs for IPMI (K_G), in hexadecimal digits; default: none."
    )
    pdu: PduSection = Field(
        default_factory=PduSection, description="PDUs of nodes whose `bmc` has `pdu`."
    )
