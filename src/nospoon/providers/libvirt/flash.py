"""Files of UEFI variables, read and written by commands on their host while their machines are off.

Not over libvirt: a guest without secure boot writes each byte of its file. A pool that has a file
which looks like a qcow2 image has libvirtd open, as root, what that image names (libvirt,
storage_util.c, storageBackendProbeTarget); a FIFO ends its work, a device may reset the host. So
the files of a pool's machines lie in a directory in it, of which libvirt lists the name alone.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.storage_xml import NVRAM
from nospoon.providers.libvirt.varstore import LARGEST, BadVariables
from nospoon.runtime.process import Finished, said_by
from nospoon.runtime.runner import Runner

Edit = Callable[[bytes], bytes]
BLOCK, MOST_CODED = 1 << 16, 2 * LARGEST
"""Bytes that are read at a time; characters of what is read, by base64: a host over ssh may be
anyone's by now.
"""
WHOLE = "whole"
"""What READ says in the end: the status of the first command of a pipe is lost (dash(1))."""
IRREGULAR = 3
REFUSE = f"""
if [ -L "$1" ] || [ ! -f "$1" ]; then echo "it is not a regular file" >&2; exit {IRREGULAR}; fi
"""
READ = f"""
[ -e "$1" ] || [ -L "$1" ] || exit 0
{REFUSE}
{{ dd if="$1" iflag=nofollow,nonblock bs={BLOCK} count={LARGEST // BLOCK} status=none &&
echo {WHOLE} >&2; }} | base64 -w0
"""
WRITE = f"""{REFUSE}
exec dd of="$1" seek="$2" oflag=nofollow,nonblock,seek_bytes conv=notrunc,nocreat \
iflag=fullblock bs={BLOCK} status=none
"""
SETTLE = f"""
cd -- "$1" || exit
for each in "$2".uefi.nvram* "$2".uefi-secure.nvram*; do
  if [ -L "$each" ] || [ ! -f "$each" ]; then continue; fi
  [ -d {NVRAM} ] || mkdir -m 0711 {NVRAM} || exit
  if [ -e "{NVRAM}/$each" ]; then rm -f -- "$each"; else mv -- "$each" {NVRAM}/; fi || exit
done
shift 2
for each; do rm -f -- "{NVRAM}/$each" || exit; done
"""
"""Takes the pool's directory, the node, and names of files that go."""
REMOVE = f"""
cd -- "$1" 2>/dev/null || exit 0
for each in . {NVRAM}; do
  rm -f -- "$each/$2".uefi.nvram* "$each/$2".uefi-secure.nvram* || exit
done
"""
CLEAR = f"""
cd -- "$1/{NVRAM}" 2>/dev/null || exit 0
rm -f -- *.uefi.nvram *.uefi-secure.nvram *.uefi.nvram.*.snapshot *.uefi-secure.nvram.*.snapshot
"""


class NotRegular(ProviderError):
    """A file of variables is a link, a device or the like."""


@dataclass(frozen=True, slots=True)
class Flash:
    """Those of one host. `runner`: runs commands there, None where none run."""

    host: str
    runner: Runner | None

    async def read(self, path: str) -> bytes | None:
        """As much of the file as may hold variables; None where there is none. Raises `NotRegular`
        and `ProviderError`.
        """
        done = await self._run(READ, path)
        if not done.stdout and not done.status and not done.stderr:
            return None
        if done.status or not done.stderr.endswith(f"{WHOLE}\n"):
            self._raise(done, f"read {path}")
        if len(done.stdout) > MOST_CODED:
            raise ProviderError(f"host {self.host}: cannot read {path}: it shows too much")
        try:
            return await asyncio.to_thread(base64.b64decode, done.stdout, validate=True)
        except ValueError as error:
            why = "what `base64` wrote there is not base64"
            raise ProviderError(f"host {self.host}: cannot read {path}: {why}") from error

    async def write(self, path: str, before: bytes, after: bytes) -> None:
        """Write what differs, as one piece. Both are the beginning of the file, of one length; the
        rest of it stays.
        """
        if before == after:
            return
        first, end = await asyncio.to_thread(_difference, before, after)
        done = await self._run(WRITE, path, str(first), stdin=after[first:end])
        self._refuse(done, f"write {path}")

    async def settle(self, pool: str, node: str, drop: Iterable[str]) -> None:
        """Move files that an earlier version made in a pool's directory to where they lie now, and
        remove some, of a machine that is off.
        """
        self._refuse(await self._run(SETTLE, pool, node, *drop), f"move UEFI variables in {pool}")

    async def remove(self, pool: str, node: str) -> None:
        """Remove a node's variables, those of its snapshots, too."""
        self._refuse(await self._run(REMOVE, pool, node), f"remove UEFI variables in {pool}")

    async def remove_file(self, path: str) -> None:
        self._refuse(await self._run('rm -f -- "$1"', path), f"remove {path}")

    async def clear(self, pool: str) -> None:
        """Remove the variables of all machines of a pool, where commands run."""
        if self.runner is not None:
            done = await self._run(CLEAR, pool)
            self._refuse(done, f"remove UEFI variables in {pool}")

    async def _run(self, script: str, *words: str, stdin: bytes | None = None) -> Finished:
        if self.runner is None:
            raise ProviderError(
                f"host {self.host}: no commands run there, so UEFI variables are not available",
                hint="Give the host `ssh: root@…` for boots into setup, secure boot and its keys.",
            )
        return await self.runner.run(["sh", "-c", script, "sh", *words], stdin=stdin, check=False)

    def _refuse(self, done: Finished, doing: str) -> None:
        if done.status:
            self._raise(done, doing)

    def _raise(self, done: Finished, doing: str) -> NoReturn:
        refusal = NotRegular if done.status == IRREGULAR else ProviderError
        raise refusal(f"host {self.host}: cannot {doing}: {said_by(done)}")


def _difference(before: bytes, after: bytes) -> tuple[int, int]:
    """Where it begins and ends."""
    first = next(n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    last = next(n for n in range(len(after) - 1, -1, -1) if before[n] != after[n])
    return first, last + 1


def edited(where: str, flash: bytes, edits: Iterable[Edit]) -> bytes:
    """What is in the file at `where` after some edits. Raises `ProviderError`."""
    try:
        for each in edits:
            flash = each(flash)
    except BadVariables as error:
        raise ProviderError(
            f"{where}: {error}",
            hint="Start the machine once without setup: the firmware then makes what it lacks.",
        ) from error
    return flash
