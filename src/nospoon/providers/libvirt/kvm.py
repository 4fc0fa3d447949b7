"""KVM is tried, not looked for: `/dev/kvm` may run firmware and hang every kernel.

A transient domain boots a Linux kernel under KVM; when its init prints a marker on the serial
port within some seconds, KVM is good. The verdict is kept in a directory, by host, kernel release
and QEMU version: none of them changes without a chance that the verdict does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import libvirt
import structlog

from nospoon.errors import NospoonError
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.console import LibvirtConsole
from nospoon.providers.libvirt.elements import element, leaf, written
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.runtime.process import printed_by
from nospoon.runtime.runner import Runner
from nospoon.runtime.telling import tell

log = structlog.get_logger()
FORBIDDEN = "test -e /dev/kvm && ! test -w /dev/kvm"
"""Shell: KVM is there, and not for this user."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What to boot: paths on the host, and the text that shows that the guest got up.

    `patience` in seconds; where KVM works, the marker comes within two. `cpu` "" is the host's
    own, which machines get under KVM too.
    """

    kernel: str
    initrd: str
    marker: bytes
    cmdline: str = "console=ttyS0 panic=-1"
    patience: float = 20.0
    cpu: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """ "kvm", or "tcg" and why."""

    accelerator: str
    note: str = ""


TrialOf = Callable[[], AbstractAsyncContextManager[Trial]]
"""Has the trial ready for a while, only when one is needed: building its guest takes long."""


class KvmTrial:
    """The verdict of one host, found once. `verdicts`: the daemon's directory for them."""

    def __init__(
        self, hypervisor: Hypervisor, runner: Runner, trial: TrialOf | None, verdicts: Path
    ) -> None:
        self._hypervisor, self._runner = hypervisor, runner
        self._trial, self._verdicts = trial, verdicts
        self._lock = asyncio.Lock()
        self._verdict: Verdict | None = None

    async def verdict(self) -> Verdict:
        """What it is, tried now where it is not known."""
        async with self._lock:
            if self._verdict is None:
                self._verdict = await self._known() or await self._tried()
            return self._verdict

    async def known(self) -> Verdict | None:
        """What is known without a trial, None where it takes one."""
        async with self._lock:
            if self._verdict is None:
                self._verdict = await self._known()
            return self._verdict

    async def _known(self) -> Verdict | None:
        if not await self._hypervisor.ask(_offers_kvm, "list virtualization types"):
            return Verdict("tcg", f"libvirt offers no KVM there{await self._forbidden()}")
        if self._trial is None:
            return Verdict("tcg", "KVM was not tried, for want of a kernel to boot")
        return await asyncio.to_thread(_read, await self._file())

    async def _forbidden(self) -> str:
        """A user's own libvirtd opens the device as that user; root's does so itself."""
        if not self._hypervisor.uri.endswith("/session"):
            return ""
        closed = await self._runner.run(["sh", "-c", FORBIDDEN], check=False)
        if closed.status != 0:
            return ""
        return ": you may not open /dev/kvm. Join the group kvm, and log in again"

    async def _tried(self) -> Verdict:
        assert self._trial is not None, "without one the verdict is known"
        tell(f"trying KVM on host {self._hypervisor.host} with a Linux guest")
        try:
            async with self._trial() as trial:
                known = await self._try(trial)
        except NospoonError as error:  # no lasting verdict: the next daemon may have a guest
            return Verdict("tcg", f"KVM was not tried, its guest cannot be made: {error.message}")
        await asyncio.to_thread(_write, await self._file(), known)
        return known

    async def _file(self) -> Path:
        version = await self._hypervisor.ask(lambda c: str(c.getVersion()), "ask for versions")
        release = printed_by(await self._runner.run(["uname", "-nr"])).strip()
        text = f"{self._hypervisor.uri}\n{release}\n{version}"
        return self._verdicts / f"kvm-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    async def _try(self, trial: Trial) -> Verdict:
        log.info("trying KVM", host=self._hypervisor.host)
        console = LibvirtConsole(asyncio.get_running_loop())
        xml = render_trial(trial)
        try:
            domain = await self._hypervisor.keep(
                lambda connect: _start(connect, xml, console), "try KVM"
            )
        except NospoonError as error:
            return Verdict("tcg", f"KVM does not start: {error.message.splitlines()[-1]}")
        try:
            async with asyncio.timeout(trial.patience):
                good = await _hears(console, trial.marker)
        except TimeoutError:
            good = False
        finally:
            await self._hypervisor.work(lambda _: _destroy(domain), "end the trial of KVM")
            await console.close()
        if good:
            return Verdict("kvm")
        why = f"KVM is there, but a Linux guest did not come up under it in {trial.patience:.0f} s"
        return Verdict("tcg", why)


def render_trial(trial: Trial) -> str:
    """A transient domain without disks or network."""
    return written(
        element(
            "domain",
            leaf("name", f"nospoon-try-kvm-{uuid4().hex[:8]}"),
            leaf("memory", "256", unit="MiB"),
            leaf("vcpu", "1"),
            element(
                "os",
                leaf("type", "hvm", arch="x86_64", machine="q35"),
                leaf("kernel", trial.kernel),
                leaf("initrd", trial.initrd) if trial.initrd else None,
                leaf("cmdline", trial.cmdline),
            ),
            element("features", element("acpi"), element("apic")),
            element("cpu", leaf("model", trial.cpu), mode="custom", match="exact")
            if trial.cpu
            else element("cpu", mode="host-passthrough"),
            leaf("on_crash", "destroy"),
            element(
                "devices",
                element("controller", type="usb", model="none"),
                element("serial", type="pty"),
                element("console", type="pty"),
                element("memballoon", model="none"),
            ),
            type="kvm",
        )
    )


def _offers_kvm(connect: Connect) -> bool:
    try:
        connect.getDomainCapabilities(None, "x86_64", "q35", "kvm", 0)
    except libvirt.libvirtError:
        return False
    return True


def _start(connect: Connect, xml: str, console: LibvirtConsole) -> Domain:
    """Started paused, so that we listen before it speaks; it ends with its connection."""
    flags = libvirt.VIR_DOMAIN_START_AUTODESTROY | libvirt.VIR_DOMAIN_START_PAUSED
    domain = connect.createXML(xml, flags)
    try:
        console.open(connect, domain)
        domain.resume()
    except libvirt.libvirtError:
        domain.destroy()
        raise
    return domain


async def _hears(console: LibvirtConsole, marker: bytes) -> bool:
    heard = b""
    while data := await console.read():
        heard = (heard + data)[-65536:]
        if marker in heard:
            return True
    return False


def _destroy(domain: Domain) -> None:
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        log.debug("the trial of KVM had ended", why=str(error))


def _read(file: Path) -> Verdict | None:
    try:
        told = json.loads(file.read_text())
        return Verdict(str(told["accelerator"]), str(told["note"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("a verdict on KVM is unreadable; trying again", file=str(file))
        return None


def _write(file: Path, verdict: Verdict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".new")
    half.write_text(json.dumps({"accelerator": verdict.accelerator, "note": verdict.note}))
    half.replace(file)
