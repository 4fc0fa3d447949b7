"""Passwords of BMCs: as they are, or as a bcrypt hash, of which Redfish alone can be served.

A hash is told from a password by its form: IPMI's passwords have at most 20 bytes.
"""

from __future__ import annotations

import re

BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
"""The modular crypt format of bcrypt, as htpasswd(1) -B writes it."""
LEAST_COST, LARGEST_COST = 4, 12
"""bcrypt takes no less; a check of the largest takes some 200 ms."""


def is_hash(password: str) -> bool:
    return BCRYPT.fullmatch(password) is not None
