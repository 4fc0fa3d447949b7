"""The support bundle: file, status, operations, logs, consoles and versions; secrets are masked."""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from nospoon import __version__
from nospoon.errors import NospoonError
from nospoon.model.cluster import Cluster
from nospoon.runtime import process

MASK = "********"
LOG_TAIL = 2 << 20
"""Bytes of the daemon's log that are packed, from its end."""
CONSOLE_TAIL = 1 << 20
"""Bytes of each console's record that are packed, from its end."""
MAX_TEXTS = 64 << 20
"""Characters of all texts: of what does not fit in, a line says so."""
MAX_LEFT_OUT = 10_000
"""Such lines."""
PIECE = 1 << 14
"""Characters that are searched in one go: some milliseconds, in which no other thread runs."""
LONGEST_KEY = 256
"""Characters of what leads to a password: a key, a colon, and the space around it."""
_KEY = re.compile(
    r"""(?i)(?:pass(?:word|code)|secret|token|\bk_g)\b['"]?\s{0,100}:\s{0,100}(?=[^\s,}\]])"""
)
"""A key of a password in YAML or JSON."""
_VALUES = {
    '"': re.compile(r'(?:[^"\\\n]|\\.)++'),
    "'": re.compile(r"(?:[^'\n]|'')++"),
    "": re.compile(r"[^,}\]\n]++"),
}
"""What may be in its value, by its quotes."""
_ACCOUNT = re.compile(r"[^/\s?#\"]++")
"""What may be before the path of a URL (RFC 3986 §3.2.1), up to whose last @ is an account."""
TOOLS = (
    ("libvirtd", "--version"),
    ("qemu-system-x86_64", "--version"),
    ("dnsmasq", "--version"),
    ("ip", "-brief", "address"),
    ("ip", "route"),
)


LONGEST_PART = 16
"""Characters of a secret that are looked for in one go: of a longer one each part is, for who has
thousands of them, each longer than the one before, would have all compared at each character.
"""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Each in all its spellings, and long ones in parts, made ready once to be looked for in many
    texts. `lengths`: of all, the longest first; `heads`: what each begins with, as long as the
    shortest; `unended`: parts that others follow.
    """

    spellings: frozenset[str]
    lengths: tuple[int, ...]
    heads: frozenset[str]
    unended: frozenset[str]

    @classmethod
    def of(cls, secrets: Iterable[str]) -> Secrets:
        unended, known = set[str](), set[str]()
        for each in (spelling for secret in secrets if secret for spelling in _spellings(secret)):
            *parts, last = _parts(each)
            unended.update(parts)
            known.update(parts, (last,))
        lengths = tuple(sorted({len(each) for each in known}, reverse=True))
        heads = frozenset(each[: lengths[-1]] for each in known)
        return cls(frozenset(known), lengths, heads, frozenset(unended))


def masked(text: str, secrets: Secrets) -> str:
    """The text without these secrets, however they are quoted, without anything that follows
    `password:`, and without the accounts of URLs. JSON stays JSON.

    It takes time in proportion to the text, however many secrets there are, and lets other threads
    have their turn: `re` does not while it searches, and a text may be one long line.
    """
    return _mask_accounts(_mask_named(_without(text, secrets)))


def _without(text: str, secrets: Secrets) -> str:
    """Mask them; those that overlap together."""
    if not secrets.lengths:
        return text
    lengths, heads, spellings = secrets.lengths, secrets.heads, secrets.spellings
    head = lengths[-1]
    kept, done, goes_on = io.StringIO(), 0, False
    for start in range(len(text) - head + 1):
        if text[start : start + head] not in heads:
            continue
        length = next((n for n in lengths if text[start : start + n] in spellings), 0)
        if start + length <= done or not length:
            continue
        if start > done or (start == done and not goes_on):
            kept.write(f"{text[done:start]}{MASK}")
        done = start + length
        goes_on = text[start:done] in secrets.unended
    kept.write(text[done:])
    return kept.getvalue()


def _mask_named(text: str) -> str:
    kept, done, start = io.StringIO(), 0, 0
    while start < len(text):
        key = _KEY.search(text, start, start + PIECE)
        if key is None:
            start += PIECE - LONGEST_KEY
            continue
        start = _end_of_value(text, key.end())
        kept.write(f'{text[done : key.end()]}"{MASK}"')
        done = start
    kept.write(text[done:])
    return kept.getvalue()


def _end_of_value(text: str, start: int) -> int:
    quote = text[start] if text[start] in _VALUES else ""
    end = _end_of(_VALUES[quote], text, start + len(quote))
    return end + 1 if quote and text.startswith(quote, end) else end


def _mask_accounts(text: str) -> str:
    kept, done, start = io.StringIO(), 0, 0
    while (start := text.find("://", start)) >= 0:
        start += len("://")
        end = _end_of(_ACCOUNT, text, start)
        if (at := text.rfind("@", start, end)) > start:
            kept.write(f"{text[done:start]}{MASK}")
            done = at
        start = end
    kept.write(text[done:])
    return kept.getvalue()


def _end_of(run: re.Pattern[str], text: str, start: int) -> int:
    while (found := run.match(text, start, start + PIECE)) is not None:
        start = found.end()
    return start


def _parts(spelling: str) -> Iterator[str]:
    """All that it has, the last part as long as the others."""
    if len(spelling) <= LONGEST_PART:
        yield spelling
        return
    for start in range(0, len(spelling) - LONGEST_PART, LONGEST_PART):
        yield spelling[start : start + LONGEST_PART]
    yield spelling[-LONGEST_PART:]


def _spellings(secret: str) -> set[str]:
    """How a text may hold it: plain, in JSON and YAML's double quotes, in YAML's single ones."""
    escaped = {json.dumps(secret, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    return {secret, secret.replace("'", "''"), quote(secret, safe=""), *escaped}


@dataclass(slots=True)
class Texts:
    """Texts by name, as long as there is room for them."""

    by_name: dict[str, str] = field(default_factory=dict)
    left: int = MAX_TEXTS
    left_out: int = 0

    def add(self, name: str, text: str) -> None:
        if len(text) <= self.left:
            self.by_name[name] = text
            self.left -= len(text)
        elif self.left_out < MAX_LEFT_OUT:
            self.by_name[name] = f"left out: the texts of a bundle have {MAX_TEXTS} characters\n"
            self.left_out += 1


@dataclass(frozen=True, slots=True)
class Bundle:
    """Texts by name; packing masks every one of them."""

    texts: Mapping[str, str]
    secrets: Collection[str]

    def pack(self) -> bytes:
        """A .tar.gz of all texts below `nospoon-support/`."""
        secrets = Secrets.of(self.secrets)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, text in self.texts.items():
                data = masked(text, secrets).encode()
                info = tarfile.TarInfo(f"nospoon-support/{name}")
                info.size, info.mode = len(data), 0o600
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


async def versions() -> str:
    """What runs here, one fact a paragraph."""
    lines = [f"nospoon {__version__}", f"Python {platform.python_version()}", platform.platform()]
    for argv in TOOLS:
        try:
            done = await process.run(argv, check=False, timeout=10)
            lines.append(f"$ {done.line}\n{done.stdout or done.stderr}")
        except NospoonError as error:
            lines.append(f"$ {' '.join(argv)}\n{error}")
    return "\n".join(lines)


def log_tail(path: Path) -> str:
    """The end of the daemon's log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL))
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"cannot read {path}: {error}"


@dataclass(frozen=True, slots=True)
class Whose:
    """By what lines of the log are a user's: ids as text."""

    uid: int
    machines: Collection[str]
    operations: Collection[str]

    def has(self, line: str) -> bool:
        """Whether a field names this owner, and none names another one."""
        try:
            fields = msgspec.json.decode(line, type=dict[str, object])
        except msgspec.DecodeError:
            return False
        own = {
            "uid": (str(self.uid),), "machine": self.machines, "uuid": self.machines,
            "operation": self.operations,
        }  # fmt: skip
        named = [str(fields[name]) in values for name, values in own.items() if name in fields]
        return bool(named) and all(named)


def lines_of(log: str, whose: Whose) -> str:
    """The lines of the daemon's log about what a user has; what names no owner is left out, for it
    may be about others.
    """
    return "".join(line for line in log.splitlines(keepends=True) if whose.has(line))


def as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def cluster_as_json(cluster: Cluster, most: int) -> str:
    """What a file says, node by node: what is shared by many nodes is written for each of them, so
    that a short file may be long here. `most`: characters, beyond which it is left out.
    """
    parts = [as_json(replace(cluster, nodes=()))]
    left = most - len(parts[0])
    for node in cluster.nodes:
        parts.append(as_json(node))
        left -= len(parts[-1])
        if left < 0:
            return f"left out: it has more than {most} characters\n"
    return "[" + ",\n".join(parts) + "]"


LEAST_LINE = 6
"""Characters of a line of user data that is masked: shorter ones are everywhere."""


def lines_of_user_data(cluster: Cluster) -> set[str]:
    """Each line of what cloud-init, installers of labs and roles of services are given, but for
    comments and its first one, and each value of services' environment: no pattern finds the
    passwords in them.
    """
    values = {value for each in cluster.services for _, value in each.environment}
    of_labs = {
        text
        for lab in cluster.labs
        for each in lab.distros
        for text in (each.user_data, each.kickstart)
    }
    return {each for each in values if len(each) >= LEAST_LINE} | {
        line.strip()
        for text in (
            *of_labs,
            *{node.cloud_init.user_data for node in cluster.nodes},
            *(each.role for each in cluster.services),
        )
        for line in text.splitlines()
        if len(line.strip()) >= LEAST_LINE and not line.lstrip().startswith("#")
    }
