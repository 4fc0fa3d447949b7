"""Files of the host that an engine shows in place of a container's own, most of them of names.
They have the host's name servers and names, and what a container writes into them fills the host's
disk, for no limit of its root counts them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from nospoon.providers.docker.program.wire import EngineError

NEWUSER, NEWNS, DETACH = 0x10000000, 0x00020000, 2
LARGEST = 1 << 20
"""Bytes of a file of names that is copied: of an image of some kilobytes it may have as many as the
image may take, once for each of its containers, beside what the engine keeps free.
"""


def unmount(pid: int, places: Sequence[str]) -> None:
    """In a container's mounts, by a process that is root in its user namespace alone: links in its
    root lead to no place of the host.
    """
    import ctypes  # noqa: PLC0415  (it takes as long as the rest)

    libc = ctypes.CDLL(None, use_errno=True)
    spaces = [os.open(f"/proc/{pid}/ns/{each}", os.O_RDONLY) for each in ("user", "mnt")]
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            for space, kind in zip(spaces, (NEWUSER, NEWNS), strict=True):
                if libc.setns(space, kind) != 0:
                    os._exit(1)
            for each in places:
                libc.umount2(each.encode(), DETACH)
            status = 0
        os._exit(status)
    for space in spaces:
        os.close(space)
    if os.waitpid(child, 0)[1] != 0:
        raise EngineError("its namespaces cannot be entered")


def keep_own(image: Sequence[Path], written: Path, places: Sequence[str]) -> None:
    """Write what an image has at these places to a container that has not run yet, over what the
    engine has put between. `image`: directories of its layers, the upper one first; `written`: that
    of what the container writes. The engine alone changes either until then. Raises `EngineError`.
    """
    for each in places:
        place = PurePosixPath(each).relative_to("/")
        try:
            for own in (layer / place for layer in image):
                if own.parent.is_symlink() or not (own.is_symlink() or own.is_file()):
                    continue
                if own.lstat().st_size > LARGEST:
                    raise EngineError(f"its image's {each} has more than {LARGEST >> 20} MiB")
                for path in (own.parent, own):
                    _copy(path, written / path.relative_to(own.parent.parent))
                break
        except OSError as error:
            raise EngineError(f"its image's {each} cannot be kept: {error.strerror}") from error


def _copy(own: Path, target: Path) -> None:
    """A file, a link, or a directory without what is in it."""
    if own.is_dir() and not own.is_symlink():
        target.mkdir(exist_ok=True)
        shutil.copystat(own, target)
    else:
        target.unlink(missing_ok=True)
        shutil.copy2(own, target, follow_symlinks=False)
    owner = own.lstat()
    os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
