"""The shape of key pairs, of which a cloud gives a machine the public key."""

from __future__ import annotations

from dataclasses import dataclass

THEIRS = "/"
"""Begins the name of a key pair that others made, in a machine's shape."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """`public_key`: its type and its content, without a comment."""

    public_key: str
