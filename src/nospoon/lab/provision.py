"""What installs a machine: the kernel's command line, and its kickstart or user data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nospoon.lab.filter import USUAL_ARCH
from nospoon.lab.work import RecipeSet, Run
from nospoon.model.boot import BOOT_URL
from nospoon.model.lab import Distro, Lab

KICKSTART_OPTION = "inst.ks="
"""Anaconda's; a distribution whose installer is another one names `{{kickstart}}` in its cmdline
(Debian's: `auto=true priority=critical url={{kickstart}}`)."""
KICKSTARTS = (KICKSTART_OPTION, "ks=")
"""And of its older versions."""
CONSOLE: Mapping[str, str] = {
    "x86_64": "console=tty0 console=ttyS0,115200n8",
    "i386": "console=tty0 console=ttyS0,115200n8",
    "aarch64": "console=tty0 console=ttyAMA0,115200n8",
}
"""Serial console by architecture (Linux, Documentation/admin-guide/serial-console.rst). Kernels of
others, such as ppc64le and s390x, take the console of their firmware.
"""
MOST_PLACES = 256
"""Of a text, that are filled in: each may be a URL of 8,000 characters."""
EVENTS = ("install_start", "install_done", "install_fail")
NO_USER_DATA = "#cloud-config\n"
_PLACEHOLDER = re.compile(r"\{\{ *([a-z_]+) *\}\}")


def urls(base: str, secret: str) -> dict[str, str]:
    """Name -> URL of a machine's kickstart and callbacks below the boot server's URL."""
    names = {"kickstart": "ks", **{each: each for each in EVENTS}}
    return {name: f"{base}/lab/{secret}/{path}" for name, path in names.items()}


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """With `{{name}}` replaced; others stay as they are, for they may be another tool's."""
    return "".join(filling_in(text, values))


def filling_in(text: str, values: Mapping[str, str]) -> Iterator[str]:
    """The same piece by piece, of which some are empty: a kickstart may have 50,000 of them."""
    done, at, places = 0, text.find("{{"), 0
    while at >= 0 and places < MOST_PLACES:
        found = _PLACEHOLDER.match(text, at)
        if found is None:
            yield ""
            at = text.find("{{", at + 1)
            continue
        yield text[done:at] + values.get(found[1], found[0])
        done, places = found.end(), places + 1
        at = text.find("{{", done)
    yield text[done:]


def kickstart(found: RecipeSet, number: int, lab: Lab, base: str) -> Iterator[str]:
    """Of a recipe, in pieces: its own, else its distribution's, "" for neither."""
    run = found.runs[number]
    distro = distro_of(lab, run)
    text = run.asked.kickstart or (distro.kickstart if distro is not None else "")
    return filling_in(text, _values(found, number, lab, base))


def user_data(found: RecipeSet, number: int, lab: Lab, base: str = BOOT_URL) -> str:
    """Of a recipe whose machine starts from an image: its own text, else its distribution's."""
    run = found.runs[number]
    distro = distro_of(lab, run)
    text = run.asked.kickstart or (distro.user_data if distro is not None else "")
    return filled_in(text, _values(found, number, lab, base))


def _values(found: RecipeSet, number: int, lab: Lab, base: str) -> dict[str, str]:
    """What is filled in."""
    run = found.runs[number]
    distro = distro_of(lab, run)
    return {
        "tree": distro.tree if distro is not None else "",
        "distro": distro.name if distro is not None else "",
        "lab": lab.name,
        "owner": found.owner,
        "recipe": f"{found.id}.{number}",
        "console": CONSOLE.get(arch_of(lab, run), ""),
        **urls(base, run.secret),
    }


def arch_of(lab: Lab, run: Run) -> str:
    """Of the machine that a recipe has; the usual one where its lab knows it no more."""
    if run.size is not None:
        flavor = run.size.flavor
        found = (each.arch for each in lab.flavors if each.name == flavor)
    else:
        found = (each.arch for each in lab.machines if each.name == run.machine)
    return next(found, USUAL_ARCH)


def cmdline(distro: Distro, run: Run, *, arch: str = USUAL_ARCH, base: str = BOOT_URL) -> str:
    """Of the installer's kernel. `base` is filled in when the machine asks what to boot. A
    kickstart that is named there is used as it is: of several, Anaconda takes the last.
    """
    known = urls(base, run.secret)
    given = filled_in(distro.cmdline, known)
    words = [CONSOLE.get(arch, ""), given, filled_in(run.asked.cmdline, known)]
    named = any(word.startswith(KICKSTARTS) for word in f"{given} {words[-1]}".split())
    if not named and "{{kickstart}}" not in distro.cmdline.replace(" ", ""):
        words.append(f"{KICKSTART_OPTION}{known['kickstart']}")
    return " ".join(filter(None, words))


def arguments(words: str) -> str:
    """The command line of a kernel as GRUB of a boot image reads it (`installer_image`): in single
    quotes nothing else has a meaning (GRUB manual, "Shell-like scripting").
    """
    quoted = words.replace("'", "'\\''")
    return f"# nospoon: the command line of the installer's kernel\nset arguments='{quoted}'\n"


def boot_image_of(distro: Distro) -> str:
    """What the boot image of a distribution is called in the files of its sets."""
    return f"boot image of {distro.name}"


def distro_of(lab: Lab, run: Run) -> Distro | None:
    return next((each for each in lab.distros if each.name == run.asked.distro), None)


def missing_distros(found: RecipeSet, lab: Lab) -> list[str]:
    """Names of distributions of a set that left the lab's file since it was submitted."""
    named = {run.asked.distro for run in found.runs if distro_of(lab, run) is None}
    return sorted(named - {""})


def cluster_name(lab: str, set_id: str) -> str:
    """Of the cluster whose nodes are a set's dynamic machines; at most 63 characters."""
    number = set_id.replace(".", "-")
    return f"lab-{lab[: 58 - len(number)]}-{number}"
