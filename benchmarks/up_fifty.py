"""`up`, a second `up`, and `down` of 50 nodes (128 MiB, one 1 GiB volume) on this machine's host,
against a bare loop of libvirt calls in the same run that makes as many volumes and domains. Needs
root and libvirtd.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

import libvirt

from measure import private_daemon, report, timed

COUNT = 50
FILE = f"""
cluster: bench
bmc: {{redfish_port: 31800, ports: 31801-31899}}
networks: {{plain: {{}}}}
nodes: [{{count: {COUNT}, memory: 128MiB, disks: [1GiB], nics: [plain], firmware: bios}}]
"""
FIRST = """
cluster: first
bmc: {redfish_port: 31800, ports: 31801-31899}
nodes: [{memory: 128MiB, disks: [1GiB]}]
"""
POOL = """<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"""
VOLUME = """<volume><name>{name}</name><capacity unit='GiB'>1</capacity>
<target><format type='qcow2'/></target></volume>"""
DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>
<memory unit='MiB'>128</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>
<features><acpi/></features>
<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{disk}'/><target dev='vda' bus='virtio'/></disk>
<serial type='pty'/></devices></domain>"""


def bare_loop(uri: str, path: str, count: int) -> tuple[float, float]:
    """Seconds to make, and to remove, the volumes and domains one after the other."""
    connection = libvirt.open(uri)
    connection.getDomainCapabilities(None, "x86_64", "q35", "qemu")  # it asks QEMU once, slowly
    name = f"bare-{uuid.uuid4().hex[:8]}"
    pool = connection.storagePoolDefineXML(POOL.format(name=name, path=path))
    pool.create()
    began = time.perf_counter()
    domains = []
    for number in range(count):
        volume = pool.createXML(VOLUME.format(name=f"v{number}"))
        text = DOMAIN.format(name=f"{name}-{number}", uuid=uuid.uuid4(), disk=volume.path())
        domains.append(connection.defineXML(text))
    made = time.perf_counter() - began
    began = time.perf_counter()
    for number, domain in enumerate(domains):
        domain.undefine()
        pool.storageVolLookupByName(f"v{number}").delete()
    removed = time.perf_counter() - began
    pool.destroy()
    pool.undefine()
    connection.close()
    return made, removed


def main() -> None:
    with private_daemon() as env, tempfile.TemporaryDirectory() as directory:
        pools = env["NOSPOON_POOL_DIR"]
        Path(pools).mkdir(mode=0o711)
        made, removed = bare_loop("qemu:///system", pools, COUNT)
        file = Path(directory, "bench.yaml")
        file.write_text(FILE)
        timed("daemon", "start", env=env)
        first = Path(directory, "first.yaml")  # the KVM trial happens once a host, and not here
        first.write_text(FIRST)
        timed("up", "--yes", str(first), env=env)
        timed("down", "--yes", "--purge", "first", env=env)
        up = timed("up", "--yes", str(file), env=env)
        again = timed("up", "--yes", str(file), env=env)
        down = timed("down", "--yes", "--purge", "bench", env=env)
    report(f"up of {COUNT} nodes", up, reference=made, of="a bare libvirt loop")
    report("the same up again, nothing to do", again, reference=made, of="a bare libvirt loop")
    report(f"down of {COUNT} nodes", down, reference=removed, of="a bare libvirt loop")


if __name__ == "__main__":
    main()
