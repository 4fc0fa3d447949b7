"""Machines that become relays by their user data, as those of clouds do: processes of this machine
with mounts of their own, in a network namespace or none. Needs root.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BOX = """set -e
mount -t tmpfs none /mnt
mkdir /mnt/etc
for each in /etc/* /etc/.[!.]*; do
    [ "$each" = /etc/libvirt ] || [ ! -e "$each" ] || cp -a "$each" /mnt/etc
done
mount --bind /mnt/etc /etc
mount -t tmpfs none /run
eval "$2"
exec sh "$1"
"""
"""What it changes of /etc and /run stays its own; systemd has /run/systemd, which is not there, nor
is what libvirt keeps in /etc: files of other tests, which come and go meanwhile.
"""


@dataclass
class RelayMachines:
    """`within`: a command line that runs another one elsewhere, such as `ip netns exec NAME`.
    `image`: shell commands that make its file system what it is before it boots.
    """

    directory: Path
    within: Sequence[str] = ()
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    user_data: dict[str, str] = field(default_factory=dict)
    image: str = ""

    def boot(self, name: str, user_data: str) -> None:
        """Run its user data, which goes on as its ssh server."""
        self.user_data[name] = user_data
        script = self.directory / f"{name}.sh"
        script.write_text(user_data)
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        argv = [*self.within, *alone, "sh", "-c", BOX, "box", str(script), self.image]
        with (self.directory / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def end(self, name: str) -> None:
        """One that does not run is fine."""
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def log(self) -> str:
        """What all of them said."""
        return "".join(p.read_text(errors="replace") for p in self.directory.glob("*.log"))


@contextlib.contextmanager
def relay_machines(*within: str) -> Iterator[RelayMachines]:
    with tempfile.TemporaryDirectory(prefix="nospoon-relay-") as directory:
        made = RelayMachines(Path(directory), within)
        try:
            yield made
        finally:
            for name in list(made.running):
                made.end(name)


def free_place() -> tuple[str, int]:
    """An address of loopback that no other test has, and a free TCP port."""
    numbers = (random.randrange(1, 255), random.randrange(255), random.randrange(2, 255))
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return ".".join(map(str, (127, *numbers))), int(tried.getsockname()[1])
