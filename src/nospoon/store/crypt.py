"""Passwords at rest: encrypted with a key that lies beside the database, not in it.

IPMI's RAKP needs the cleartext (IPMI 2.0 §13.28), so a digest will not do.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from nospoon.errors import NospoonError

RESTORE = (
    "Restore it from a backup. Without one, move it away together with the database, and run "
    "`nospoon recover` with each cluster's file: nodes are kept, and get new passwords."
)


class Cipher:
    """Encrypts and decrypts with the key of one file. `name`: of the key, for messages."""

    def __init__(self, key: bytes, name: str = "") -> None:
        self._name = name
        self._fernet = Fernet(key)
        self._digest_key = hashlib.sha256(b"nospoon digest" + key).digest()

    @classmethod
    def from_file(cls, path: Path) -> Cipher:
        """The key in this file (mode 0600), made on first use. Raises `NospoonError`."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            try:
                return cls(path.read_bytes(), str(path))
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not a whole key"
                raise NospoonError(f"cannot use the key {path}: {why}", hint=RESTORE) from error
        key = Fernet.generate_key()
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        return cls(key, str(path))

    def encrypt(self, text: str) -> bytes:
        return self.encrypt_bytes(text.encode())

    def decrypt(self, data: bytes) -> str:
        """Raises `NospoonError` for what another key encrypted."""
        return self.decrypt_bytes(data).decode()

    def encrypt_bytes(self, data: bytes) -> bytes:
        return self._fernet.encrypt(data)

    def decrypt_bytes(self, data: bytes) -> bytes:
        """Raises `NospoonError` for what another key encrypted."""
        try:
            return self._fernet.decrypt(data)
        except InvalidToken as error:
            raise NospoonError(
                f"the key {self._name} is not the one that encrypted the database", hint=RESTORE
            ) from error

    def derived(self, purpose: str) -> bytes:
        """A key of its own for this purpose, the same after a restart."""
        return hmac.digest(self._digest_key, purpose.encode(), "sha256")

    def digest(self, text: str) -> str:
        """Short and keyed: tells whether a secret changed, and nothing else."""
        return hmac.new(self._digest_key, text.encode(), hashlib.sha256).hexdigest()[:16]
