"""YAML for other programs, whatever version of YAML they read.

PyYAML quotes text that YAML 1.1 reads as something else. By YAML 1.2 (§10.3.2), and by the parser
of Kubernetes and other programs in Go, more is a number or a boolean: the name `1e3` is 1000.
"""

from __future__ import annotations

import re

import yaml

_READ_ELSEWHERE = re.compile(
    r"[-+]?(0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|0[bB][01_]+|[0-9][0-9_]*)"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[yYnN]"
)


class Dumper(yaml.CSafeDumper):
    """Quotes text that any of them reads as something else."""


def quoted_text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    value = value.encode("utf-8", "backslashreplace").decode()  # surrogates are no text for libyaml
    style = "'" if _READ_ELSEWHERE.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


Dumper.add_representer(str, quoted_text)
