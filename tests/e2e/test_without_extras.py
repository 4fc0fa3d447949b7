"""An installation without extras: what needs one says so, and what needs none works."""

from __future__ import annotations

import os

from nospoon.testing.rack import Rack, private_rack


def block(rack: Rack, *names: str) -> None:
    """Make these modules missing for the rack's daemon and command line."""
    blocked = rack.directory / "blocked"
    blocked.mkdir()
    for name in names:
        missing = f"ModuleNotFoundError('no module', name={name!r})"
        (blocked / f"{name}.py").write_text(f"raise {missing}\n")
    others = filter(None, [rack.environment.get("PYTHONPATH")])
    rack.environment["PYTHONPATH"] = os.pathsep.join([str(blocked), *others])


def test_without_libvirts_module_a_plan_names_the_extra_and_simulated_hosts_work() -> None:
    with private_rack() as rack:
        block(rack, "libvirt", "libvirt_qemu")
        name = rack.name()
        file = rack.file(f"cluster: {name}\nnodes: [{{count: 1}}]\n")
        for command in (("plan", file), ("up", "--yes", file)):
            said = rack.run(*command, status=1).stderr
            assert "needs libvirt's Python module, which is not installed for the daemon" in said
            assert "pip install 'nospoon[libvirt]'" in said
            assert "hosts: {here: simulated}" in said
        hosts = "hosts: {here: simulated}\n"
        text = f"cluster: {name}\n{hosts}{rack.bmc()}nodes: [{{count: 1}}]\n"
        rack.run("up", "--yes", rack.file(text))


def test_without_openstacksdk_plans_with_ironic_and_images_of_glance_name_the_extra() -> None:
    with private_rack() as rack:
        block(rack, "openstack", "keystoneauth1")
        name = rack.name()
        text = f"cluster: {name}\nhosts: {{here: simulated}}\n{rack.bmc()}nodes: [{{count: 1}}]\n"
        file = rack.file(text + "ironic: {endpoint: 'http://127.0.0.1:9'}\n")
        for command in (("plan", file), ("up", "--yes", file)):
            said = rack.run(*command, status=1).stderr
            assert "openstacksdk is needed to enroll nodes, and is not installed" in said
            assert "pip install 'nospoon[ironic]'" in said
            assert "leave `ironic` out of the file" in said
        cloud = rack.file(text + "ironic: {cloud: some}\n")
        assert "pip install 'nospoon[ironic]'" in rack.run("plan", cloud, status=1).stderr
        for argv in (["list"], ["show", "some"], ["remove", "some"]):
            said = rack.run("image", *argv, "--os-cloud", "some", status=1).stderr
            assert "pip install 'nospoon[ironic]'" in said
            assert "without `--os-cloud`" in said
