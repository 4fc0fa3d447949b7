"""Where everything is, for root and for users; one table that documents are made from.

Root's daemon follows the FHS; a user's follows the XDG base directory specification.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable, its defaults for root and for users, and what it is."""

    variable: str
    root: str
    user: str
    meaning: str


TABLE = (
    Setting(
        "NOSPOON_STATE_DIR",
        "/var/lib/nospoon",
        "$XDG_STATE_HOME/nospoon",
        "database, key file, uploads, network boot files, boot ISO and console records",
    ),
    Setting(
        "NOSPOON_RUNTIME_DIR",
        "/run/nospoon",
        "$XDG_RUNTIME_DIR/nospoon",
        "the daemon's socket and pid file",
    ),
    Setting(
        "NOSPOON_CACHE_DIR",
        "/var/cache/nospoon",
        "$XDG_CACHE_HOME/nospoon",
        "what can be made again: the probe, the KVM verdict",
    ),
    Setting(
        "NOSPOON_POOL_DIR",
        "/var/lib/nospoon/pools",
        "$XDG_DATA_HOME/nospoon/pools",
        "storage pools of local hosts",
    ),
    Setting(
        "NOSPOON_DATABASE",
        "sqlite:///$NOSPOON_STATE_DIR/nospoon.db",
        "sqlite:///$NOSPOON_STATE_DIR/nospoon.db",
        "SQLAlchemy URL of the store",
    ),
    Setting(
        "NOSPOON_GROUP",
        "libvirt",
        "",
        "group whose members may use root's daemon beside root",
    ),
    Setting("NOSPOON_LOG", "info", "info", "log level: debug, info, warning or error"),
    Setting(
        "NOSPOON_BOOT_PORT",
        "8069",
        "8069",
        "TCP port for boot scripts and files; 0 takes any free one on loopback",
    ),
    Setting(
        "NOSPOON_LEASE",
        "15",
        "15",
        "seconds for which a daemon may be silent before another one on the same database may "
        "take over its hosts",
    ),
    Setting(
        "NOSPOON_BMC_RESTART",
        "2",
        "2",
        "seconds for which a BMC that is told to restart answers nobody",
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings of one daemon and the clients that talk to it."""

    state: Path
    runtime: Path
    cache: Path
    pools: Path
    database: str
    group: str
    log_level: str
    boot_port: int
    bmc_restart: float
    lease: float
    privileged: bool

    @property
    def socket(self) -> Path:
        return self.runtime / "nospoond.sock"

    @property
    def pid_file(self) -> Path:
        return self.runtime / "nospoond.pid"

    @property
    def log_file(self) -> Path:
        return self.state / "nospoond.log"

    @property
    def default_uri(self) -> str:
        """libvirt URI of hosts that name none."""
        return "qemu:///system" if self.privileged else "qemu:///session"


def settings_for(environment: Mapping[str, str], *, uid: int) -> Settings:
    """The settings of a daemon with this environment and user."""
    values: dict[str, str] = {**_xdg(environment, uid)}
    for setting in TABLE:
        default = setting.root if uid == 0 else setting.user
        values[setting.variable] = environment.get(setting.variable) or _expand(default, values)
    return Settings(
        state=Path(values["NOSPOON_STATE_DIR"]),
        runtime=Path(values["NOSPOON_RUNTIME_DIR"]),
        cache=Path(values["NOSPOON_CACHE_DIR"]),
        pools=Path(values["NOSPOON_POOL_DIR"]),
        database=values["NOSPOON_DATABASE"],
        group=values["NOSPOON_GROUP"],
        log_level=values["NOSPOON_LOG"],
        boot_port=int(values["NOSPOON_BOOT_PORT"]),
        bmc_restart=float(values["NOSPOON_BMC_RESTART"]),
        lease=float(values["NOSPOON_LEASE"]),
        privileged=uid == 0,
    )


def _xdg(environment: Mapping[str, str], uid: int) -> dict[str, str]:
    home = environment.get("HOME") or str(Path.home())
    run = f"/run/user/{uid}"
    fallback = run if os.access(run, os.W_OK) else f"{home}/.cache/nospoon-run"
    return {
        "XDG_STATE_HOME": environment.get("XDG_STATE_HOME") or f"{home}/.local/state",
        "XDG_CACHE_HOME": environment.get("XDG_CACHE_HOME") or f"{home}/.cache",
        "XDG_DATA_HOME": environment.get("XDG_DATA_HOME") or f"{home}/.local/share",
        "XDG_RUNTIME_DIR": environment.get("XDG_RUNTIME_DIR") or fallback,
    }


def _expand(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    return text
