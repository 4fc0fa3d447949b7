"""Files that clients uploaded, by content: the daemon opens no path that a client names."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path

from nospoon.errors import NotFound, OutOfSpace, ProviderError, UsageError
from nospoon.plan.resolve import ImageFacts
from nospoon.runtime import process

CHUNK = 1 << 20
FETCH_TIMEOUT = 60.0
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"https?://")


def is_url(name: str) -> bool:
    """Whether a name in a cluster file is a URL and not a path."""
    return bool(_URL.match(name))


@dataclass(frozen=True, slots=True)
class Access:
    """How a URL is fetched: HTTP basic authentication (RFC 7617) when there is a user name.

    `verify`: the server's certificate must hold (RFC 9110 §4.3.4).
    """

    username: str = ""
    password: str = field(default="", repr=False)
    verify: bool = True

    def request(self, url: str) -> urllib.request.Request:
        request = urllib.request.Request(url)  # noqa: S310  (callers check the scheme)
        if self.username:
            pair = b64encode(f"{self.username}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {pair}")
        return request

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of files named by their SHA-256."""

    directory: Path

    def path(self, sha256: str) -> Path:
        """Where the content with this digest lies. Raises `NotFound`."""
        if not _DIGEST.match(sha256):
            raise UsageError(f"expected a SHA-256 in lower-case hex, got {sha256!r}")
        found = self.directory / sha256
        if not found.is_file():
            raise NotFound(f"no file with SHA-256 {sha256} was uploaded")
        return found

    def has(self, sha256: str) -> bool:
        return bool(_DIGEST.match(sha256)) and (self.directory / sha256).is_file()

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove every file that is not among these."""
        for path in self.directory.glob("*"):
            if path.name not in digests:
                path.unlink(missing_ok=True)

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Take an upload; content that does not match its digest is refused and removed."""
        if not _DIGEST.match(sha256):
            raise UsageError(f"expected a SHA-256 in lower-case hex, got {sha256!r}")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as part:
            temporary = Path(part.name)
            try:
                async for chunk in chunks:
                    digest.update(chunk)
                    part.write(chunk)
                part.flush()
                if digest.hexdigest() != sha256:
                    raise UsageError(
                        f"upload is damaged: expected SHA-256 {sha256}, got {digest.hexdigest()}"
                    )
                temporary.rename(self.directory / sha256)
            except OSError as error:
                temporary.unlink(missing_ok=True)
                raise OutOfSpace(f"cannot keep the upload in {self.directory}: {error}") from error
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def drop(self, sha256: str) -> None:
        """Remove a file; one that is gone already is no error."""
        (self.directory / sha256).unlink(missing_ok=True)

    async def fetch(self, url: str, access: Access | None = None) -> str:
        """Download an http(s) URL; returns its SHA-256."""
        return await asyncio.to_thread(self._fetch, url, access or Access())

    def _fetch(self, url: str, access: Access) -> str:
        if not is_url(url):
            raise UsageError(f"expected an http or https URL, got {url!r}")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as part:
            temporary = Path(part.name)
            try:
                with urllib.request.urlopen(  # noqa: S310  (checked above)
                    access.request(url), timeout=FETCH_TIMEOUT, context=access.tls()
                ) as answer:
                    while chunk := answer.read(CHUNK):
                        digest.update(chunk)
                        part.write(chunk)
                temporary.rename(self.directory / digest.hexdigest())
            except (urllib.error.URLError, OSError) as error:
                temporary.unlink(missing_ok=True)
                raise ProviderError(f"cannot fetch {url}: {error}") from error
        return digest.hexdigest()

    async def image_facts(self, name: str, sha256: str) -> ImageFacts:
        """What qemu-img finds; an image that refers to other files is refused."""
        path = self.path(sha256)
        done = await process.run(
            ["qemu-img", "info", "--output=json", "-U", str(path)], check=False
        )
        if done.status != 0:
            said = done.stderr.replace(str(path), name).strip()
            raise UsageError(f"image {name}: qemu-img cannot read it: {said}")
        info = json.loads(done.stdout)
        refers = info.get("full-backing-filename") or info.get("backing-filename")
        data_file = info.get("format-specific", {}).get("data", {}).get("data-file")
        if refers or data_file:
            raise UsageError(
                f"image {name} refers to another file ({refers or data_file})",
                hint="Flatten it: qemu-img convert -O qcow2 OLD NEW.",
            )
        corrupt = info.get("format-specific", {}).get("data", {}).get("corrupt")
        if corrupt:
            raise UsageError(f"image {name} is marked corrupt", hint="Run qemu-img check on it.")
        if not info["virtual-size"]:
            raise UsageError(f"image {name} is empty")
        return ImageFacts(sha256, info["format"], info["virtual-size"])
