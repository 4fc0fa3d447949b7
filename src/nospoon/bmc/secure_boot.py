"""Secure boot of one machine whose firmware has keys enrolled (UEFI 2.10 §32).

The switch takes effect when the machine starts next. A reset does not start it again on every
connection, so that a reset with a change that waits is carried out as a power cycle; a reboot by
the guest changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecureBoot:
    """`enabled`: from the next start on. `current`: of the boot at hand. `reset`: the next start
    puts the keys back that the firmware was made with.
    """

    enabled: bool = True
    current: bool = True
    reset: bool = False

    @property
    def waits(self) -> bool:
        """The next start changes something."""
        return self.reset or self.enabled is not self.current

    @property
    def told(self) -> bool | None:
        """What a start is told; None: it is as it was made, so that nothing need be told."""
        return None if self.enabled and self.current else self.enabled


ENROLLED = SecureBoot()
