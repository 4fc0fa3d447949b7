"""The exit status after Ctrl-C, apart from what takes long to import."""

from __future__ import annotations

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
