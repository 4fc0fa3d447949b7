"""Words that users of Ironic, libvirt, IPMI, Redfish and Kubernetes do not know: none are left.

Looked at are the texts that a user meets: README and pages, help of the command line, and every
string of the code that is a sentence or a part of one (messages, hints, descriptions, log events).
Names of options, keys and kinds are not words of a sentence and are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = (
    "tells?", "told", "telling", "somebody", "nobody", "anew", "(?:of )?ours", "mend(?:s|ed|ing)?",
    "put right", "makes? good", "made good", "let be", "left alone", "let go", "cannot be had",
    "(?:is|are|was) to be had", r"(?<!here )is no (?!longer\b|more\b)\w+", "(?:is|are) no more",
    "(?:is|are) to be done again", "h[oe]ld against", "what there is", "what is so", "what stands",
    "the file says", "heard of", "goes? on unseen", "gone on unseen", "room", "wish(?:es)?",
    "bad days", "on demand", "ha(?:s|ve) a word for", "only so (?:often|long)", "standings?",
    "enrols?", "enrolment", "whoever", "whom", "strangers?", "at it", "asleep", "misses",
    "also (?:while|when|where|if)", "throwaway", "half-made", "borne out", "bears? out",
    r"(?<=  )Which(?=\.)", "Write it there", "chosen by itself", "(?:can|could) bear",
    r"(?<!thrown )(?<!taken )(?<!given )(?<!rotated )(?:is|are|was|were) away",
    r"leaves? (?:it|them|the other|that \w+) alone",
    r"(?<=, )for (?:it|they|files|others|any \w+|a cloud) (?:may|can|has|have|is)",
    r"(?<=, )for (?:\w+ )?\w+ (?:might|decided|serves|needs?)",
)  # fmt: skip
"""Regular expressions of what shared plain English says otherwise: "reports", "another user",
"again", "repair", "skipped", "capacity" and so on.
"""
FOUND = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
NAMES = re.compile(r"`[^`]*`|(?<!\w)--?[a-z][\w-]*|\b\w+(?:[-_]\w+)+\b|\b\w+: ?(?:true|false)\b")
"""What is no word of a sentence: code, options, names with hyphens, settings of a file."""
SHELL = ("nobody)", "nobody:", "as nobody")
"""The user that dnsmasq runs as."""


SAID = re.compile(r"(?:#+|- name:) (.+)")
"""A comment, the help of a target of make, or the name of a task of Ansible."""


def wrong(text: str) -> list[str]:
    plain = NAMES.sub(" ", text)
    for name in SHELL:
        plain = plain.replace(name, " ")
    return [found.group() for found in FOUND.finditer(plain)]


def pages() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    yield from sorted((ROOT / "contrib").glob("*/README.md"))
    yield from (p for p in sorted((ROOT / "docs").glob("**/*.md")) if "adr" not in p.parts)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Its literals with a blank. Docstrings count where references show them, as `pages`."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value.strip() and id(node) not in documentation:
            yield node.lineno, node.value


@pytest.mark.parametrize(
    "text", ["Nobody is there", "it is made anew", "this is no URL", "`up` tells why", "put right"]
)
def test_the_words_are_found(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize("text", ["there is no daemon", "`nobody`", "it is no longer up"])
def test_other_words_are_not(text: str) -> None:
    assert not wrong(text)


def test_pages_and_help_have_none_of_them() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}: {', '.join(words)}: {line}"
        for page in pages()
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if (words := wrong(line))
    ]
    assert not found, "\n".join(found)


def test_comments_and_names_in_files_for_users_have_none_of_them() -> None:
    """What a user reads who runs `make`, the demo, or a piece of contrib or examples."""
    files = [ROOT / "Makefile", ROOT / "scripts" / "demo", ROOT / "scripts" / "setup"]
    for where in ("contrib", "examples"):
        files += [each for each in sorted((ROOT / where).rglob("*")) if each.suffix != ".py"]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {', '.join(words)}: {line}"
        for file in files
        if file.is_file() and file.suffix not in {".pyc", ".gz"}
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (text := SAID.search(line)) and (words := wrong(text.group(1)))
    ]
    assert not found, "\n".join(found)


def test_messages_have_none_of_them() -> None:
    sources = sorted((ROOT / "src" / "nospoon").rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {', '.join(words)}: {text}"
        for path in sources
        if "testing" not in path.parts
        for number, text in strings(path)
        if (words := wrong(text))
    ]
    assert not found, "\n".join(found)
