#!/usr/bin/env python3
"""Ansible's inventory for Bifrost's playbooks, from a nospoon cluster that is up.

In place of Bifrost's `inventory/bifrost_inventory.py`: the same groups and variables, and no file
between, so that it is never older than the cluster. NOSPOON_CLUSTER names the cluster or its file;
DEFAULT_HOST_GROUPS and BIFROST_NODE_NAMES mean what they mean to Bifrost:
https://docs.openstack.org/bifrost/latest/user/howto.html
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

Host = dict[str, Any]


def inventory(hosts: dict[str, Host], *, groups: list[str], only: list[str]) -> dict[str, Any]:
    """What `--list` prints. `groups`: those of every host; `only`: hosts, [] for all."""
    made: dict[str, Any] = {"localhost": {"hosts": ["127.0.0.1"]}}
    chosen = {name: host for name, host in hosts.items() if not only or name in only}
    for name, host in chosen.items():
        host["host_groups"] = sorted({*host.get("host_groups", []), *groups})
        if address := host.get("ipv4_address"):
            host |= {"ansible_ssh_host": address, "provisioning_ipv4_address": address}
        else:
            host["addressing_mode"] = "dhcp"
        for group in host["host_groups"]:
            made.setdefault(group, {"hosts": []})["hosts"].append(name)
    return {"_meta": {"hostvars": chosen}, **made}


def exported(cluster: str) -> dict[str, Host]:
    """Name -> machine, as Bifrost's files have them."""
    argv = [os.environ.get("NOSPOON", "nospoon"), "export", "--to", "bifrost", cluster]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    told: dict[str, Host] = json.loads(done.stdout)
    return told


def main() -> None:
    """`--list`, or `--host NAME`."""
    if "NOSPOON_CLUSTER" not in os.environ:
        sys.exit("NOSPOON_CLUSTER is not set. Give it the name of a nospoon cluster, or its file.")
    try:
        hosts = exported(os.environ["NOSPOON_CLUSTER"])
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the cluster cannot be exported: {error}")
    made = inventory(
        hosts,
        groups=os.environ.get("DEFAULT_HOST_GROUPS", "baremetal").split(),
        only=[n for n in os.environ.get("BIFROST_NODE_NAMES", "").split(",") if n],
    )
    if "--host" in sys.argv:
        made = made["_meta"]["hostvars"].get(sys.argv[sys.argv.index("--host") + 1], {})
    print(json.dumps(made, indent=2))


if __name__ == "__main__":
    main()
