"""Labs of a file: where a lab scheduler's recipes get machines, and under which limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from nospoon.clusterfile.command_line import CommandLine
from nospoon.clusterfile.fields import (
    Address,
    Checksum,
    Duration,
    Mac,
    Memory,
    Name,
    Place,
    Size,
    Url,
    UserData,
    WholeUrl,
)
from nospoon.clusterfile.section import (
    Flag,
    OneOrMore,
    Section,
    Text,
    Unique,
    Whole,
    each_once,
    few,
    listed,
    no_items,
)
from nospoon.lab.grammar import ROWS, Means
from nospoon.model.cluster import Node
from nospoon.model.lab import (
    Disks,
    Distro,
    Lab,
    LabFlavor,
    Limits,
    Prefer,
    Registered,
    Timeouts,
    Webhook,
)

ATTRIBUTES = tuple(
    f"{group}/{name}" if group != "host" else name
    for group, rows in ROWS.items()
    for name, row in rows.items()
    if row.means is Means.HARDWARE and name not in ("key_value", "device", "host")
)
"""What filters may compare besides memory, CPUs, disks and architecture."""
MOST_MACHINES = 1000
MOST_TOGETHER, MOST_MACS = 5000, 20_000
"""Registered machines of a file, and their MAC addresses."""
MOST_PATTERN = 200


def _printable(value: str) -> str:
    """What a command line or an environment takes."""
    if not value.isprintable():
        raise ValueError("expected printable characters")
    return value


def _attributes(values: dict[str, object]) -> dict[str, object]:
    unknown = sorted(set(values) - set(ATTRIBUTES))
    if unknown:
        known = ", ".join(ATTRIBUTES)
        raise ValueError(f"unknown attribute {unknown[0]!r}. Known: {known}")
    return values


def _in_a_list(value: object) -> object:
    """What stands alone is one of one: of a number, `Text` says that it needs quotes."""
    return value if isinstance(value, list | dict) else [value]


Value = Annotated[Text, Field(max_length=255)]
"""Requests are compared with it, and answers have it."""
Several = Annotated[list[Value], BeforeValidator(listed), OneOrMore()]
Values = Annotated[list[Value], Field(max_length=256), BeforeValidator(_in_a_list), OneOrMore()]


class LabLimitsSection(Section):
    """How many machines a lab has at a time; 0: no limit."""

    machines: Annotated[Whole, Field(ge=0)] = Field(0, description="Dynamic machines; default 0.")
    cpus: Annotated[Whole, Field(ge=0)] = Field(0, description="Their CPUs; default 0.")
    memory: Memory | None = Field(None, description="Their memory; default: no limit.")
    per_owner: Annotated[Whole, Field(ge=0)] = Field(
        0, description="Machines of one owner, dynamic and registered; default 0."
    )


class LabTimeoutsSection(Section):
    """Beaker's watchdog: when a machine that does not report is given up."""

    boot: Duration = Field(1800.0, description="From power-on until its installer reports.")
    install: Duration = Field(10800.0, description="From then until it is installed.")
    panic: Duration = Field(600.0, description="What is left of a lease after a kernel panic.")


class DistroSection(Section):
    """What installs machines. `nospoon distro import URL` prints one."""

    kernel: Url | None = Field(None, description="URL of the installer's kernel.")
    initrd: Url | None = Field(None, description="URL of its initial ramdisk.")
    script: WholeUrl | None = Field(
        None,
        description="In place of both: URL of an iPXE script, such as a scheduler's; iPXE fills in "
        "`${uuid}`.",
    )
    boot_image: Literal["common", "distro"] = Field(
        "common",
        description="What a dynamic machine boots for kernel and initrd: nospoon's boot image, or "
        "the network, which asks the daemon (`common`, default), or an image of both that nospoon "
        "makes of this distribution (`distro`); that needs flavors with `firmware: uefi`.",
    )
    tree: Url | None = Field(None, description="URL of the installation tree.")
    cmdline: CommandLine = Field("", max_length=2048, description="More kernel parameters.")
    kickstart: Text = Field(
        "",
        max_length=1 << 16,
        description="Kickstart or preseed for requests that bring none. `{{tree}}`, `{{lab}}`, "
        "`{{recipe}}`, `{{owner}}`, `{{console}}` and the URLs `{{install_start}}`, "
        "`{{install_done}}` and `{{install_fail}}` are filled in.",
    )

    image: Text = Field(
        "",
        description="In place of an installer: the cloud image that machines start from, a path "
        "beside the file, a URL or `store:NAME`.",
    )
    checksum: Checksum = Field(
        "",
        description="Of an image by URL, as that of a disk.",
    )
    user_data: UserData | None = Field(
        None,
        description="Of an image: user data of cloud-init for requests that bring no kickstart, as "
        "text or `{file: PATH}`. The same is filled in as in `kickstart`. A machine is ready when "
        "it fetches `{{install_done}}`.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> DistroSection:
        given = [self.kernel is not None or self.initrd is not None, self.script is not None]
        count = sum((*given, bool(self.image)))
        if not count or (given[0] and (self.kernel is None or self.initrd is None)):
            raise ValueError("expected kernel and initrd, a script, or an image")
        if count > 1:
            raise ValueError("expected kernel and initrd, a script, or an image: one of them")
        return self

    @model_validator(mode="after")
    def _what_suits_it(self) -> DistroSection:
        if self.image and (self.cmdline or self.kickstart):
            raise ValueError(
                "an image has no installer: drop cmdline and kickstart, and write user_data"
            )
        if self.boot_image == "distro" and self.kernel is None:
            raise ValueError("only kernel and initrd make a boot image: drop boot_image")
        if not self.image and (self.checksum or self.user_data is not None):
            raise ValueError("only an image has a checksum and user_data: drop them")
        if self.checksum and not self.image.startswith(("http://", "https://")):
            raise ValueError("only an image by URL has a checksum: drop it")
        return self


class LabBmcSection(Section):
    """The BMC of a registered machine, of any vendor."""

    protocol: Literal["ipmi", "redfish"] = Field("ipmi", description="What it speaks.")
    address: Address = Field(description="Its IP address.")
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = Field(
        None, description="Its port; default: 623, and 443 of Redfish."
    )
    tls: Flag = Field(
        default=True, description="Whether its Redfish speaks TLS; no certificate is verified."
    )
    username: Annotated[Text, AfterValidator(_printable)] = Field(
        "admin", max_length=64, description="Its user; default `admin`."
    )
    password: Annotated[Text, AfterValidator(_printable)] = Field(
        max_length=255, description="The password of that user."
    )
    system: Text = Field(
        "",
        max_length=255,
        description="Id of its System, where its Redfish service has several, such as one for all "
        "blades of a chassis or all nodes of a cluster; default: the only one.",
    )

    @property
    def place(self) -> tuple[str, int, str]:
        """Of the machine: no other one has it."""
        port = self.port or (623 if self.protocol == "ipmi" else 443)
        return str(self.address), port, self.system

    @model_validator(mode="after")
    def _systems_are_redfishs(self) -> LabBmcSection:
        if self.system and self.protocol != "redfish":
            raise ValueError("only Redfish has Systems: drop system, or write protocol: redfish")
        return self


class LabMachineSection(Section):
    """A registered machine: it is loaned to recipes that its attributes match."""

    bmc: LabBmcSection = Field(description="Its BMC.")
    arch: Text | None = Field(
        None,
        max_length=64,
        description="Architecture; default: what `nospoon lab inventory` found, else `x86_64`.",
    )
    cpus: Annotated[Whole, Field(ge=1, le=65536)] | None = Field(
        None, description="CPUs; default: what was found, else 1."
    )
    memory: Memory | None = Field(
        None, description="Memory with unit; default: what was found, else none."
    )
    disks: list[Size] = Field(
        default_factory=no_items,
        max_length=64,
        description="Sizes of disks; default: what was found.",
    )
    macs: list[Mac] = Field(
        default_factory=no_items,
        max_length=64,
        description="MAC addresses of its NICs; default: what was found.",
    )
    hypervisor: Text = Field(
        "", max_length=64, description="`KVM` of a virtual machine; default: none."
    )
    attributes: Annotated[dict[str, Values], few(256), AfterValidator(_attributes)] = Field(
        default_factory=dict,
        description="What filters compare besides, by element: `system/vendor`, `cpu/model_name`, "
        "`hostname`, `pool` …; a text or a list of them.",
    )
    key_values: Annotated[dict[Value, Values], few(256)] = Field(
        default_factory=dict, max_length=256, description="Keys of `key_value`."
    )


class WebhookSection(Section):
    """Where events of recipe sets are sent, as signed HTTP POSTs of JSON."""

    url: WholeUrl = Field(description="http or https URL.")
    secret: Text = Field(
        min_length=16, max_length=255, description="Key of the signature (HMAC-SHA256)."
    )


class LabSection(Section):
    """A lab: dynamic machines of a host, registered machines, or both."""

    host: Place | None = Field(
        None, description="Host of its dynamic machines; default: one that fits."
    )
    dynamic: Flag = Field(
        default=True, description="Whether it makes dynamic machines; default yes."
    )
    flavors: Annotated[
        list[Name],
        Field(max_length=1000),
        BeforeValidator(listed),
        AfterValidator(each_once),
        OneOrMore(),
        Unique(),
    ] = Field(
        default_factory=no_items,
        description="Flavors of dynamic machines; default: all of the file.",
    )
    disks: Disks = Field(
        Disks.PRECLUDE,
        description="Recipes that ask for disks get no dynamic machine (`preclude`, default), one "
        "of a `flavor` with such a disk, or one with a first disk of the size that is `asked` for, "
        "in whole GiB. In a cloud the last one needs `volumes`.",
    )
    minimum_disk: Size = Field(
        "10GiB", validate_default=True, description="Flavors with less are not taken."
    )
    largest_disk: Size = Field(
        "100GiB",
        validate_default=True,
        description="With `disks: asked`: the largest disk that is made.",
    )
    prefer: Prefer = Field(
        Prefer.DYNAMIC,
        description="What a recipe gets where both match: a `dynamic` machine (default) or a "
        "`registered` one.",
    )
    limits: LabLimitsSection = Field(
        default_factory=LabLimitsSection, description="How many machines it has at a time."
    )
    lease: Duration = Field(
        86400.0, description="How long machines are leased, where a request does not say."
    )
    timeouts: LabTimeoutsSection = Field(
        default_factory=LabTimeoutsSection, description="When machines are given up."
    )
    distros: Annotated[dict[Name, DistroSection], few(1000)] = Field(
        default_factory=dict,
        max_length=1000,
        description="What installs machines, by name; without any, machines are only started.",
    )
    users: Several = Field(
        default_factory=no_items,
        max_length=1000,
        description="Users who may submit requests, besides the owner of the cluster; `*`: all who "
        "may use the daemon.",
    )
    operators: Several = Field(
        default_factory=no_items,
        max_length=1000,
        description="Users who may submit and end requests for others, such as Beaker's.",
    )
    machines: Annotated[dict[Name, LabMachineSection], few(MOST_MACHINES)] = Field(
        default_factory=dict, max_length=MOST_MACHINES, description="Registered machines."
    )
    failures: Annotated[Whole, Field(ge=1, le=1000)] = Field(
        3, description="Failures in a row after which a registered machine is broken; default 3."
    )
    panic: list[Annotated[Text, Field(min_length=3, max_length=MOST_PATTERN)]] = Field(
        default_factory=no_items,
        max_length=32,
        description="Texts of a kernel's panic in a line of its console, in which `*` is any text; "
        "default: Beaker's patterns.",
    )
    webhooks: list[WebhookSection] = Field(
        default_factory=no_items, max_length=8, description="Where its events are sent."
    )


def flavor_of_labs(template: Node, unfit: str) -> LabFlavor:
    """As filters compare it, one disk: the largest."""
    return LabFlavor(
        name=template.flavor,
        cpus=template.cpus,
        memory=template.memory,
        disk=max((each.size for each in template.disks), default=0),
        images=tuple(each.source for each in template.disks if each.image),
        unfit=unfit,
        arch=str(template.arch),
        wired=bool(template.nics),
    )


def labs(sections: Mapping[str, LabSection], flavors: Mapping[str, LabFlavor]) -> Iterator[Lab]:
    """`flavors`: all of the file, by name."""
    for name, each in sections.items():
        offered = each.flavors or list(flavors)
        yield Lab(
            name=name,
            dynamic=each.dynamic,
            host=each.host or "",
            flavors=tuple(flavors[flavor] for flavor in offered if flavor in flavors),
            disks=each.disks,
            minimum_disk=each.minimum_disk,
            largest_disk=each.largest_disk,
            prefer=each.prefer,
            limits=Limits(
                machines=each.limits.machines,
                cpus=each.limits.cpus,
                memory=each.limits.memory or 0,
                per_owner=each.limits.per_owner,
            ),
            lease=each.lease,
            timeouts=Timeouts(each.timeouts.boot, each.timeouts.install, each.timeouts.panic),
            distros=tuple(
                Distro(
                    called,
                    d.kernel or "",
                    d.initrd or "",
                    d.tree or "",
                    d.cmdline,
                    d.kickstart,
                    d.script or "",
                    d.image,
                    d.checksum,
                    d.user_data or "",
                    has_boot_image=d.boot_image == "distro",
                )
                for called, d in each.distros.items()
            ),
            users=tuple(each.users),
            operators=tuple(each.operators),
            machines=tuple(_machine(called, m) for called, m in each.machines.items()),
            failures=each.failures,
            panic_patterns=tuple(each.panic),
            webhooks=tuple(Webhook(hook.url, hook.secret) for hook in each.webhooks),
        )


def _machine(name: str, section: LabMachineSection) -> Registered:
    bmc = section.bmc
    return Registered(
        name=name,
        protocol=bmc.protocol,
        address=bmc.place[0],
        tls=bmc.tls,
        port=bmc.place[1],
        username=bmc.username,
        password=bmc.password,
        system=bmc.system,
        arch=section.arch or "",
        memory=(section.memory or 0) >> 20,
        cpus=section.cpus or 0,
        disks=tuple(section.disks),
        hypervisor=section.hypervisor,
        macs=tuple(section.macs),
        values={key: tuple(values) for key, values in section.attributes.items()},
        key_values={key: tuple(values) for key, values in section.key_values.items()},
    )
