"""Simulated deploy agents, obeying a real conductor."""

from __future__ import annotations

from pathlib import Path

from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api, files_of
from nospoon.testing.rack import Rack

FILE = """
cluster: {name}
hosts: {{sim: {{simulated: {{agents: {{boot_script: "{files}/boot.ipxe"}}}}}}}}
{bmc}networks: {{lan: {{}}}}
ironic:
  endpoint: {endpoint}
  name: "{{cluster}}-{{node}}"
  deploy_kernel: {files}/kernel
  deploy_ramdisk: {files}/ramdisk
  automated_clean: true
  interfaces: {{deploy: direct, boot: ipxe, inspect: agent}}
nodes: {nodes}
"""


def test_a_node_is_cleaned_by_its_agent(rack: Rack, api: Api, running_ironic: Ironic) -> None:
    files_of(running_ironic)
    name = rack.name()
    text = FILE.format(
        name=name, files=running_ironic.wanted.files_url, bmc=rack.bmc(),
        endpoint=running_ironic.endpoint, nodes="[{name: n0}]",
    )  # fmt: skip
    rack.run("up", "--yes", rack.file(text))
    node = api.nodes()[f"{name}-n0"]
    assert node["provision_state"] == "available"
    record = rack.directory / "state" / "consoles" / f"{node['uuid']}.log"
    assert "erase_devices_metadata: SUCCEEDED" in Path(record).read_text()
