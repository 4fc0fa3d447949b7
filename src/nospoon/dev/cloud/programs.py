"""The services of a cloud: what each runs, and after which others it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nospoon.dev.cloud.configuration import DATABASE_SOCKET, HOST, inside
from nospoon.dev.cloud.wanted import INSIDE, Api, Wanted

DEBIAN = {
    "mariadbd": "mariadb-server-core",
    "/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server",
    "ovs-vswitchd": "openvswitch-switch",
    "libvirtd": "libvirt-daemon",
    "virtlogd": "libvirt-daemon",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "dnsmasq": "dnsmasq-base",
    "iptables": "iptables",
    "xorrisofs": "xorriso",
    "unshare": "util-linux",
    "ip": "iproute2",
}
"""Programs that it needs, and Debian's packages of them."""
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
WSGI = {
    Api.KEYSTONE: "keystone.wsgi.api:application",
    Api.PLACEMENT: "placement.wsgi.api:application",
    Api.GLANCE: "glance.wsgi.api:application",
    Api.NEUTRON: "neutron.wsgi.api:application",
    Api.NOVA: "nova.wsgi.osapi_compute:application",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A service. `env`: variables beside those of all."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def environment(made: Path) -> dict[str, str]:
    """Of all services. Nothing of the caller's is passed on. `made`: the Python environment."""
    return {
        "PATH": f"{INSIDE}/bin:{made}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(INSIDE / "python"),
        "HOME": str(INSIDE / "home"),
        "TMPDIR": str(INSIDE / "tmp"),
        "LC_ALL": "C.UTF-8",
    }


DATABASE = Program(
    "mariadb",
    (
        "/usr/sbin/mariadbd", "--no-defaults", "--user=root", f"--datadir={INSIDE}/mariadb",
        f"--socket={DATABASE_SOCKET}", "--skip-networking", "--skip-grant-tables",
        "--max-connections=1000", "--innodb-flush-log-at-trx-commit=2", "--skip-log-bin",
        "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=128M",
        "--character-set-server=utf8mb4", "--innodb-doublewrite=0",
    ),
)  # fmt: skip
"""Commits survive the server's end, not the machine's: nothing waits for the disk."""
BROKER = Program(
    "rabbitmq",
    ("/usr/lib/rabbitmq/bin/rabbitmq-server",),
    {
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_MNESIA_BASE": str(INSIDE / "rabbitmq"),
        "RABBITMQ_LOG_BASE": str(INSIDE / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(inside("rabbitmq/rabbitmq")),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(inside("rabbitmq/plugins")),
        "RABBITMQ_PID_FILE": str(INSIDE / "rabbitmq/pid"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    },
)
SWITCH = (
    Program("ovsdb", (
        "ovsdb-server", str(INSIDE / "ovs.db"), "--remote=punix:/run/openvswitch/db.sock",
        "--remote=db:Open_vSwitch,Open_vSwitch,manager_options", "--pidfile",
    )),
    Program("ovs-vswitchd", (
        "ovs-vswitchd", "unix:/run/openvswitch/db.sock", "--pidfile",
    )),
)  # fmt: skip
HYPERVISOR = (
    Program("virtlogd", ("virtlogd",)),
    Program("libvirtd", ("libvirtd",)),
)
BASE = (DATABASE, BROKER, *SWITCH, *HYPERVISOR)
"""What the services of OpenStack need."""


def apis(made: Path) -> Iterator[Program]:
    """Those that clients reach by HTTP, and what does Neutron's work, which needs no account."""
    for api in WSGI:
        env = {
            f"OS_{api.upper()}_CONFIG_DIR": str(inside(api)),
            "OS_KEYSTONE_CONFIG_FILES": "keystone.conf",
            "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
            # Keystone and Nova parse the arguments of the program that imports them
            "GUNICORN_CMD_ARGS": f"--config {inside(f'{api}/gunicorn.py')}",
        }
        yield Program(api, (f"{made}/bin/gunicorn",), env)
    yield _worker(made, "neutron-rpc-server")


_AFTER_LOAD = """

def post_worker_init(worker):
    import gc

    gc.collect()
    gc.freeze()  # what is loaded stays: not to be searched for garbage again and again
    gc.set_threshold(10_000, 20, 20)
"""
"""Of gunicorn's configuration. A fifth of a request's time was the search for garbage."""


def gunicorn(wanted: Wanted, api: Api, application: str) -> str:
    """Its configuration: one process, so that an idle cloud takes little memory."""
    options = {
        "wsgi_app": application,
        "bind": f"127.0.0.1:{wanted.port(api)}",
        "worker_class": "gthread",
        "threads": 8,
        "timeout": 600,
        "graceful_timeout": 5,
        "keepalive": 30,
        "control_socket_disable": True,
    }
    return "".join(f"{key} = {value!r}\n" for key, value in options.items()) + _AFTER_LOAD


def first(made: Path) -> tuple[Program, ...]:
    """Those that answer messages."""
    names = ("nova-conductor", "nova-scheduler", "nova-serialproxy")
    return tuple(_worker(made, name) for name in names)


QUEUES = ("q-plugin", "q-reports-plugin", "conductor", "scheduler")
"""What `first` takes messages from. Who asks before waits a minute for the answer."""


def agents(made: Path) -> tuple[Program, ...]:
    """Those that ask `first` as soon as they start."""
    return tuple(_worker(made, name) for name in (*AGENTS, COMPUTE))


AGENT_QUEUES = tuple(
    f"{topic}.{HOST}"
    for topic in ("compute", "dhcp_agent", "l3_agent", "q-agent-notifier-tunnel-update")
)
"""What `agents` take messages from. One that was killed counts as alive for a minute."""
COMPUTE = "nova-compute"
AGENTS = ("neutron-openvswitch-agent", "neutron-dhcp-agent", "neutron-l3-agent")


def _worker(made: Path, name: str) -> Program:
    service = name.partition("-")[0]
    file = name if name == COMPUTE else service
    config = f"--config-file={inside(f'{service}/{file}.conf')}"
    if name == COMPUTE:  # -P: modules beside it are not those that it imports
        script = str(Path(__file__).with_name("nova_compute.py"))
        return Program(name, (f"{made}/bin/python", "-P", script, config))
    return Program(name, (f"{made}/bin/{name}", config))
