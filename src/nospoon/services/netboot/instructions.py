"""What machines boot, as files of TFTP: for loaders that cannot ask the daemon by HTTP.

GRUB never can; iPXE can, unless its network is on another host than the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from nospoon.model.resources.netboot import Loader, Reservation
from nospoon.protocols.ipxe import grub, script
from nospoon.protocols.ipxe.dnsmasq import refuse_odd
from nospoon.protocols.ipxe.offer import Offer
from nospoon.services.netboot.http import offer
from nospoon.services.netboot.ports import BootAnswer, BootAuthority, ServedFile
from nospoon.services.netboot.tree import Tree


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a loader is told: which file it reads, in what words, and how it names other files."""

    file: Callable[[str], str]
    say: Callable[[Offer], str]
    place: str
    fetches_urls: bool


GRUB = Dialect(grub.machine_file, grub.answer, "(tftp,{address})/{path}", fetches_urls=False)
IPXE = Dialect(script.machine_file, script.answer, "tftp://{address}/{path}", fetches_urls=True)
DIALECTS: Mapping[Loader, Dialect] = {Loader.IPXE: IPXE, Loader.SHIM: GRUB, Loader.GRUB: GRUB}


def by_file(each: Reservation) -> bool:
    """Whether its loader reads its instructions from a file wherever it is."""
    return each.loader is not Loader.IPXE


def write(
    tree: Tree, reservations: Collection[Reservation], authority: BootAuthority, *, address: str
) -> None:
    """Write the instructions of these machines and the files that they name; remove all others."""
    used, texts = set[str](), dict[str, str]()
    refuse_odd(reservations)
    for each in reservations:
        dialect = DIALECTS[each.loader]
        answer = authority.answer(uuid=each.uuid)
        if answer is not None:
            said = dialect.say(_offer(tree, answer, dialect, address, used))
            texts |= {dialect.file(mac): said for mac in each.macs}
    tree.write_instructions(texts)
    tree.drop_files_except(used)


def _offer(tree: Tree, answer: BootAnswer, dialect: Dialect, address: str, used: set[str]) -> Offer:
    """An offer of files below the TFTP root; they are put in place and noted in `used`."""
    profile = answer.profile
    named = (profile.kernel, *profile.initrd) if profile is not None else ()
    foreign = [each for each in named if isinstance(each, str)]
    if foreign and not dialect.fetches_urls:
        why = f"signed loaders fetch no URL, and the profile names {foreign[0]}"
        return Offer(answer.device, refusal=why)

    def place(file: ServedFile | str) -> str:
        if isinstance(file, str):
            return file
        path = tree.offer_file(Path(file.path))
        used.add(path)
        return dialect.place.format(address=address, path=path)

    try:
        return offer(answer, place)
    except FileNotFoundError as error:
        return Offer(answer.device, refusal=f"{error.filename} is missing")
