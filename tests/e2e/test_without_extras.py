"""An installation without extras: what needs one says so, and what needs none works."""

from __future__ import annotations

from nospoon.testing.rack import private_rack


def test_without_libvirts_module_a_plan_names_the_extra_and_simulated_hosts_work() -> None:
    with private_rack() as rack:
        blocked = rack.directory / "blocked"
        blocked.mkdir()
        for name in ("libvirt", "libvirt_qemu"):
            missing = f"ModuleNotFoundError('no module', name={name!r})"
            (blocked / f"{name}.py").write_text(f"raise {missing}\n")
        rack.environment["PYTHONPATH"] = str(blocked)
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
