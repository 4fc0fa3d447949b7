"""Serial over LAN (§15), the BMC's side: characters in, payloads out; no socket, no clock.

    0  sequence number of this packet's characters, 1 to 15; 0: it has none
    1  sequence number that is acknowledged; 0: none is
    2  how many of its characters were taken
    3  operation (from the console) or status (from the BMC)
    4  characters

Rules:

- One packet with characters is under way at a time. It is sent again, the same, until it is
  acknowledged or was sent often enough; then it is given up, for its console is not there.
- What a console took of it only in part goes on in the next packet (§15.11), when the last one
  would be sent again: else a small packet that takes nothing would have a large one sent.
- A packet of the console that was sent again is acknowledged again, and typed once.
- What waits is bounded; the oldest gives way, and the next packet says so (transmit overrun).
"""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.protocols.ipmi.wire import Garbage

HEADER = 4
MAX_CHARACTERS = 200
"""Of one packet either way; the acknowledgement counts up to 255."""
BUFFER = 1 << 16
NACK = 0x40
BREAK, PAUSE, FLUSH_IN, FLUSH_OUT = 0x10, 0x08, 0x02, 0x01
"""Operations of the console (table 15-2)."""
DEACTIVATING, OVERRUN = 0x10, 0x08
"""Status of the BMC."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a packet of the console leads to: payloads to send, characters typed, a break."""

    send: tuple[bytes, ...] = ()
    typed: bytes = b""
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Retries:
    """Of packets that no one acknowledges: how often they are sent again, after so many seconds."""

    count: int = 7
    seconds: float = 0.5


class Sol:
    """One activation. `session`: whose it is. `size`: most characters of a packet to it."""

    __slots__ = (
        "_heard",
        "_number",
        "_overrun",
        "_paused",
        "_resend_at",
        "_retries",
        "_taken",
        "_tries",
        "_under_way",
        "_waiting",
        "session",
        "size",
    )

    def __init__(
        self, session: int, *, size: int = MAX_CHARACTERS, retries: Retries | None = None
    ) -> None:
        self.session, self.size = session, size
        self._retries = retries or Retries()
        self._waiting = bytearray()
        self._under_way = b""
        self._number = self._tries = 0
        self._heard = self._taken = 0
        self._resend_at: float | None = None
        self._overrun = self._paused = False

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        return self._resend_at

    def say(self, data: bytes, now: float) -> tuple[bytes, ...]:
        """The machine said this; what can be sent of it now."""
        self._waiting += data
        if len(self._waiting) > BUFFER:
            del self._waiting[: len(self._waiting) - BUFFER]
            self._overrun = True
        return self._go_on(now)

    def receive(self, payload: bytes, now: float) -> Heard:
        """A packet of the console. Raises `Garbage`."""
        if len(payload) < HEADER or len(payload) > HEADER + 255:
            raise Garbage("no SOL packet")
        number, acknowledged, count, operation = payload[:HEADER]
        self._operate(operation)
        self._acknowledge(acknowledged & 0x0F, count, refused=bool(operation & NACK))
        send: list[bytes] = []
        typed = b""
        if number & 0x0F:
            typed = self._take(number & 0x0F, payload[HEADER:])
            send.append(bytes([0, self._heard, self._taken, self._status()]))
        send.extend(self._go_on(now))
        return Heard(tuple(send), typed, bool(operation & BREAK))

    def expire(self, now: float) -> tuple[bytes, ...]:
        """Send again what was not acknowledged, or give it up."""
        if self._resend_at is None or self._resend_at > now:
            return ()
        if self._tries > self._retries.count:
            self._under_way = b""
            return self._go_on(now)
        return (self._packet(now),)

    def end(self) -> bytes:
        """The packet that tells the console that its activation ends."""
        return bytes([0, 0, 0, DEACTIVATING])

    def _operate(self, operation: int) -> None:
        self._paused = bool(operation & PAUSE)
        if operation & FLUSH_OUT:
            self._waiting.clear()

    def _acknowledge(self, number: int, count: int, *, refused: bool) -> None:
        if not number or number != self._number or not self._under_way:
            return
        rest = self._under_way[count:]
        if rest and (count or not refused):
            if count:
                self._under_way, self._number = rest, self._number % 15 + 1
                self._tries = 0
            return
        self._under_way, self._resend_at = b"", None
        self._waiting[:0] = rest
        self._paused = self._paused or bool(rest)

    def _take(self, number: int, characters: bytes) -> bytes:
        """What was not typed before."""
        fresh = characters if number != self._heard else characters[self._taken :]
        self._taken = len(characters)
        self._heard = number
        return fresh

    def _status(self) -> int:
        overrun, self._overrun = self._overrun, False
        return OVERRUN if overrun else 0

    def _go_on(self, now: float) -> tuple[bytes, ...]:
        if self._under_way:
            return ()
        self._resend_at = None
        if self._paused or not self._waiting:
            return ()
        self._under_way = bytes(self._waiting[: self.size])
        del self._waiting[: self.size]
        self._number = self._number % 15 + 1
        self._tries = 0
        return (self._packet(now),)

    def _packet(self, now: float) -> bytes:
        self._tries += 1
        self._resend_at = now + self._retries.seconds
        return bytes([self._number, 0, 0, self._status()]) + self._under_way
