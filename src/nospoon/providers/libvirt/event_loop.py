"""libvirt's event loop: its default implementation, in one thread of this process.

libvirt keeps one event implementation per process, set before the first connection is opened; so
this is state of the process by nature. Callbacks run in that thread and may do one thing only: hand
a value to asyncio with `call_soon_threadsafe`. (libvirtaio instead touches asyncio's selector from
worker threads, and aborts the process under uvloop.)
"""

from __future__ import annotations

import threading

import libvirt
import structlog

log = structlog.get_logger()
_once = threading.Lock()
_started: list[threading.Thread] = []


def ensure_started() -> None:
    """Start the thread, unless it runs already. Call before opening any connection."""
    with _once:
        if _started:
            return
        libvirt.registerErrorHandler(_heard, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_run, name="libvirt events", daemon=True)
        _started.append(thread)
        thread.start()


def _run() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


def _heard(context: object, error: object) -> None:
    """libvirt would print errors that we raise, or handle, to stderr."""
    del context, error
