"""What machines of recipes ask and report: kickstart, callbacks, and what registered ones boot."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.inventory import Inventories
from nospoon.lab.provision import cmdline, distro_of, kickstart
from nospoon.lab.work import RecipeSet, Report, Run, SetState, Stage
from nospoon.plan.identity import made_for_a_cluster
from nospoon.probe.record import Record
from nospoon.protocols.ipxe.offer import Kernel
from nospoon.protocols.ipxe.script import LEAVE, load, written
from nospoon.runtime.clock import Clock
from nospoon.runtime.local_peers import user_of
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.neighbors import Neighbor, Way, neighbor
from nospoon.runtime.socket_diag import Place

log = RateLimitedLog()
UserOf = Callable[[Place, Place], int | None]
"""(peer, here) -> the user of another process of this machine."""
OwnerOfBridge = Callable[[str], int | None]
"""Name of a bridge that nospoon made -> whose it is."""

EVENTS = ("install_start", "install_done", "install_fail")
MOST_WHY = 200
PIECES = 256
"""Of a kickstart that are filled in between two looks at the time."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Answers to machines; they know a secret of their recipe, or are known by their MAC."""

    board_of: Callable[[], Board]
    clock: Clock
    inventories_of: Callable[[], Inventories]
    owner_of_bridge: OwnerOfBridge = lambda _: None
    user_of: UserOf = user_of
    neighbor: Callable[[str], Neighbor] = neighbor

    @property
    def board(self) -> Board:
        return self.board_of()

    @property
    def inventories(self) -> Inventories:
        return self.inventories_of()

    async def kickstart(self, secret: str, base: str) -> str | None:
        """Its text; None for a secret that is of no recipe, or of one that is over. `base`: URL of
        this server as the machine reaches it.
        """
        found = self._of(secret, also=SetState.STARTING)
        if found is None:
            return None
        recipe_set, number, known = found
        turn, parts = self.board.slices.begin(recipe_set.submitter), list[str]()
        for count, piece in enumerate(kickstart(recipe_set, number, known.lab, base)):
            if not count % PIECES:
                await turn.rest()
            parts.append(piece)
        return "".join(parts)

    async def report(self, secret: str, event: str, why: str) -> bool:
        """Whether it is taken: one that is replayed, or comes out of turn, changes nothing."""
        found = self._of(secret, also=SetState.STARTING)
        if found is None or event not in EVENTS:
            return False
        recipe_set, number, _ = found
        scheduler, now = self.board.scheduler, self.clock()
        said = "".join(each for each in unquote(why)[:MOST_WHY] if each.isprintable())
        message = f"the installer reports a failure: {said}" if said else "the installer failed"
        match event:
            case "install_start":
                report = Report("started")
            case "install_done":
                report = Report("done")
            case _:
                report = Report("failed", message)
        await self.board.do(lambda: scheduler.reported(recipe_set.id, number, report, now))
        return True

    async def script(self, mac: str, base: str, *, peer: Place, here: Place) -> str | None:
        """The iPXE script of a registered machine: its installer while that is to start, else its
        disk. None for a machine that is not registered, and for those who cannot be it; "" while
        its set is starting. `peer` asked at `here`.
        """
        found = self.board.labs.registered(mac)
        if found is None:
            if not self.inventories.seeks:
                return None
            return written(f"chain --autofree {base}/lab/inventory/${{uuid}}/ipxe ||", *LEAVE)
        known, machine = found
        macs = known.machines[machine].macs if machine in known.machines else ()
        if not self._may_be(known, macs, peer=peer, here=here):
            log.info("refused the boot script of a registered machine", mac=mac, peer=peer[0])
            return None
        secret = self.inventories.of_machine(known.key, machine)
        return self._probe(secret, base) if secret else self._script(known, machine, base, peer[0])

    async def probe_script(self, uuid: str, base: str, *, peer: Place, here: Place) -> str | None:
        """The script of a machine whose inventory is taken and that is known by its UUID."""
        found = self.inventories.of_uuid(uuid)
        if found is None:
            return None
        secret, known = found
        if not self._may_be(known, None, peer=peer, here=here):
            log.info("refused the script of an inventory", uuid=uuid, peer=peer[0])
            return None
        return self._probe(secret, base)

    def _probe(self, secret: str, base: str) -> str:
        return written(*load(self.inventories.kernel(secret, base)), *LEAVE)

    def probe_file(self, secret: str, name: str) -> Path | None:
        """A file of the probe, for a machine whose inventory is taken."""
        return self.inventories.file(secret, name)

    async def inventory(self, secret: str, record: Record) -> bool:
        """Whether the probe's record is taken."""
        return self.inventories.report(secret, record)

    def _may_be(
        self, known: KnownLab, macs: tuple[str, ...] | None, *, peer: Place, here: Place
    ) -> bool:
        """Whether a machine with these MAC addresses may ask there; None: with any. An installer's
        script has a secret. Who is on a network of this machine is known by MAC; processes of this
        machine by their user: the lab's owner, and the daemon's, may look. Guests choose their MAC:
        on networks of clusters, those of the lab's owner may ask.
        """
        try:
            found = self.neighbor(peer[0])
        except OSError as error:
            log.warning("it is not known where a machine asks from", peer=peer[0], why=str(error))
            return False
        match found.way:
            case Way.HERE:
                there, at = (each.partition("%")[0] for each in (peer[0], here[0]))
                user = self.user_of((there, peer[1]), (at, here[1]))
                return user is not None and user in {os.geteuid(), known.owner}
            case Way.LINK:
                if (
                    macs is not None and found.mac not in macs
                ):  # also one that the kernel has forgotten
                    return False
                is_guest = made_for_a_cluster(found.interface)
                return not is_guest or self.owner_of_bridge(found.interface) == known.owner
            case Way.ROUTED:
                return True

    def _script(self, known: KnownLab, machine: str, base: str, peer: str) -> str | None:
        set_id = self.board.scheduler.holder(known.key, machine)
        recipe_set = self.board.scheduler.sets.get(set_id)
        run = (
            next((r for r in recipe_set.runs if r.machine == machine), None) if recipe_set else None
        )
        if recipe_set is None or run is None:
            return written("echo nospoon: no recipe has this machine", *LEAVE)
        if recipe_set.state is SetState.STARTING:
            return ""
        distro = distro_of(known.lab, run)
        if run.stage not in (Stage.BOOTING, Stage.INSTALLING) or distro is None:
            return written("echo nospoon: boot the disk", *LEAVE)
        if self.board.asked_from.setdefault(run.secret, peer) != peer:
            log.warning(
                "another address asks for an installer's script",
                set=recipe_set.id, machine=machine, peer=peer,
            )  # fmt: skip
            return None
        if distro.script:
            return written(f"chain --autofree {distro.script} ||", *LEAVE)
        words = cmdline(distro, run, arch=known.machines[machine].arch, base=base)
        kernel = Kernel(distro.name, distro.kernel, (distro.initrd,), words)
        return written(*load(kernel), *LEAVE)

    def _of(
        self, secret: str, *, also: SetState = SetState.RUNNING
    ) -> tuple[RecipeSet, int, KnownLab] | None:
        """Of a set that runs, or is `also` in that state."""
        place = self.board.secrets.get(secret)
        if place is None:
            return None
        set_id, number = place
        recipe_set = self.board.scheduler.sets.get(set_id)
        if recipe_set is None or recipe_set.state not in (SetState.RUNNING, also):
            return None
        run: Run = recipe_set.runs[number]
        if run.over:
            return None
        return recipe_set, number, self.board.labs.known_of(recipe_set)
