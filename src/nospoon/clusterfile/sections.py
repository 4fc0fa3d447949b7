"""Plain values -> sections, piece by piece, so that one bad piece hides no other error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from nospoon.clusterfile.bmcs import BmcSection
from nospoon.clusterfile.document import MAX_PROBLEMS, Document, Path, Value, as_sequence
from nospoon.clusterfile.fields import (
    LABEL_PATTERN,
    PLACE_PATTERN,
    SERIAL_PATTERN,
    Name,
)
from nospoon.clusterfile.ironic import IronicSection
from nospoon.clusterfile.labs import LabSection
from nospoon.clusterfile.models import (
    BootProfileSection,
    ClusterFile,
    HostSection,
    NetworkSection,
)
from nospoon.clusterfile.nearest import MAX_LETTERS, nearest
from nospoon.clusterfile.node_groups import (
    MAX_CLUSTER,
    FlavorSection,
    NodeGroupSection,
)
from nospoon.clusterfile.nova import NovaSection
from nospoon.clusterfile.section import MAX_ERRORS, Errors, Flag, TooManyErrors, shown
from nospoon.clusterfile.services import ServiceSection
from nospoon.errors import Problem
from nospoon.model.boot import OTHER_DEVICES
from nospoon.model.names import MAX_NAME, NAME_PATTERN, wanted_of

M = TypeVar("M", bound=BaseModel)

_NAME: TypeAdapter[str] = TypeAdapter(Name)
MOST = {
    "boot": 1000, "flavors": 1000, "hosts": 1000, "labs": 100, "networks": 1000, "services": 100,
}  # fmt: skip
"""Entries of a section: each host is asked, each network compared with every other, and the nodes
of a service are found by their names.
"""
_FLAG: TypeAdapter[bool] = TypeAdapter(Flag)


@dataclass(slots=True)
class Sections:
    """What could be read. `raw`: the plain values; `names`: by section, also of bad entries."""

    raw: Mapping[str, Value] = field(default_factory=dict)
    cluster: str = ""
    id: str | None = None
    throwaway: bool = False
    hosts: dict[str, HostSection] = field(default_factory=dict)
    networks: dict[str, NetworkSection] = field(default_factory=dict)
    flavors: dict[str, FlavorSection] = field(default_factory=dict)
    boot: dict[str, BootProfileSection] = field(default_factory=dict)
    bmc: BmcSection = field(default_factory=BmcSection)
    ironic: IronicSection | None = None
    nova: NovaSection | None = None
    labs: dict[str, LabSection] = field(default_factory=dict)
    services: dict[str, ServiceSection] = field(default_factory=dict)
    groups: dict[int, NodeGroupSection] = field(default_factory=dict)
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unread: set[Path] = field(default_factory=set)
    """Entries of `nodes` and `services` that are not right as a whole: nodes may be missing."""
    instances: dict[int, str] = field(default_factory=dict)
    """Groups that `services` describe, and the entry there (`service_instances`)."""
    own: dict[str, int] = field(default_factory=dict)
    """Services on the nodes of such a group."""

    @property
    def hopeless(self) -> bool:
        return len(self.problems) > MAX_PROBLEMS


def read_sections(document: Document) -> Sections:
    """Every section that is right, and every problem of those that are not."""
    found = Sections(problems=list(document.problems))
    value = document.value
    if not isinstance(value, dict):
        found.problems.append(document.problem((), f"expected a mapping, got {shown(value)}"))
        return found
    found.raw = value
    _refuse_unknown_sections(document, value, found)
    _read_names(document, value, found)
    if "throwaway" in value:
        flag = _read(document, ("throwaway",), value["throwaway"], _FLAG.validate_python, found)
        found.throwaway = bool(flag)
    found.hosts = _read_mapping(document, value, "hosts", HostSection, found)
    found.networks = _read_mapping(document, value, "networks", NetworkSection, found)
    found.flavors = _read_mapping(document, value, "flavors", FlavorSection, found)
    found.boot = _read_mapping(document, value, "boot", BootProfileSection, found)
    if value.get("bmc") is not None:
        bmc = _read(document, ("bmc",), value["bmc"], BmcSection.model_validate, found)
        found.bmc = bmc or found.bmc
    if value.get("ironic") is not None:
        found.ironic = _read(
            document, ("ironic",), value["ironic"], IronicSection.model_validate, found
        )
    if value.get("nova") is not None:
        found.nova = _read(document, ("nova",), value["nova"], NovaSection.model_validate, found)
    found.labs = _read_mapping(document, value, "labs", LabSection, found)
    found.services = _read_mapping(document, value, "services", ServiceSection, found)
    _read_groups(document, value, found)
    return found


def _refuse_unknown_sections(
    document: Document, value: Mapping[str, Value], found: Sections
) -> None:
    known = list(ClusterFile.model_fields)
    for key in value:
        if key not in known and not found.hopeless:
            hint = did_you_mean(key, known)
            if key in NodeGroupSection.model_fields and not hint.startswith("Did"):
                hint = f"`{key}` is for nodes: write it in an entry of `nodes`"
            found.problems.append(
                document.problem((key,), f"unknown key {shown(key)}", hint, at_key=True)
            )


def _read_names(document: Document, value: Mapping[str, Value], found: Sections) -> None:
    for required in ("cluster", "nodes"):
        if required not in value and not (required == "nodes" and "services" in value):
            hint = f"Add `{'cluster: NAME' if required == 'cluster' else 'nodes: [{count: 2}]'}`"
            found.problems.append(document.problem((), f"missing key {required!r}", hint))
    if "cluster" in value:
        name = _read(document, ("cluster",), value["cluster"], _NAME.validate_python, found)
        found.cluster = name or ""
    if isinstance(value.get("id"), str):
        found.id = str(value["id"])
    elif value.get("id") is not None:
        found.problems.append(
            document.problem(("id",), f"expected a UUID, got {shown(value['id'])}")
        )


def _read_mapping(
    document: Document,
    value: Mapping[str, Value],
    section: str,
    model: type[M],
    found: Sections,
) -> dict[str, M]:
    given = value.get(section)
    result: dict[str, M] = {}
    if given is None:
        given = {}
    if not isinstance(given, dict):
        found.problems.append(
            document.problem((section,), f"expected a mapping of names, got {shown(given)}")
        )
        given = {}
    found.names[section] = frozenset(given)
    most = MOST.get(section, len(given))
    if len(given) > most:
        message = f"expected at most {most} {section}, got {len(given)}"
        found.problems.append(document.problem((section,), message))
        given = dict(islice(given.items(), most))
    for name, body in given.items():
        if found.hopeless:
            break
        _read(document, (section, name), name, _NAME.validate_python, found)
        body = {} if body is None else body  # noqa: PLW2901  (`here:` alone means all defaults)
        parsed = _read(document, (section, name), body, model.model_validate, found)
        if parsed is None:
            found.unread |= {(section, name)} if section == "services" else set()
            parsed = _what_is_right(model, body)
        if parsed is not None:
            result[name] = parsed
    return result


def _what_is_right(model: type[M], body: Value) -> M | None:
    """A section without its wrong keys, so that they hide no problem of the others."""
    if not isinstance(body, dict):
        return None
    try:
        model.model_validate(body, context=Errors())
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        wrong = {detail["loc"][0] for detail in found if detail["loc"]}
    except TooManyErrors:
        return None
    rest = {key: value for key, value in body.items() if key not in wrong}
    try:
        return model.model_validate(rest, context=Errors())
    except (ValidationError, TooManyErrors):
        return None


def _read_groups(document: Document, value: Mapping[str, Value], found: Sections) -> None:
    nodes = value.get("nodes")
    if "nodes" in value and not isinstance(nodes, list):
        found.problems.append(
            document.problem(
                ("nodes",), f"expected a list, got {shown(nodes)}", "Write `nodes: [{count: 2}]`"
            )
        )
    groups = as_sequence(nodes)
    if len(groups) > MAX_CLUSTER:  # those of no nodes are read, too
        message = f"expected at most {MAX_CLUSTER} groups of nodes, got {len(groups)}"
        found.problems.append(document.problem(("nodes",), message))
    for index, body in enumerate(islice(groups, MAX_CLUSTER)):
        if found.hopeless:
            break
        group = _read(document, ("nodes", index), body, NodeGroupSection.model_validate, found)
        if group is None:
            found.unread.add(("nodes", index))
        else:
            found.groups[index] = group


R = TypeVar("R")


def _read(
    document: Document, path: Path, value: Value, parse: Callable[..., R], found: Sections
) -> R | None:
    try:
        return parse(value, context=Errors())
    except ValidationError as error:
        found.problems += translated(document, path, value, error)
    except TooManyErrors:
        message = f"more than {MAX_ERRORS} problems, which are not listed"
        found.problems.append(document.problem(path, message))
    return None


def translated(
    document: Document, path: Path, value: Value, error: ValidationError
) -> Iterable[Problem]:
    """What pydantic found wrong with a value at a path, as problems of the file."""
    for detail in islice(error.errors(include_url=False), MAX_PROBLEMS):
        inner = _existing(value, detail["loc"])
        if detail["type"] == "extra_forbidden":
            key = str(detail["loc"][-1])
            yield document.problem(
                (*path, *inner), f"unknown key {shown(key)}", _meant(detail, error), at_key=True
            )
        elif detail["type"] == "missing":
            yield document.problem((*path, *inner), f"missing key {str(detail['loc'][-1])!r}")
        else:
            secret = inner[-1:] in SECRETS or inner[-2:-1] == ("environment",)
            message, hint = _message(detail, secret=secret)
            is_body = path[:1] == ("hosts",) and path[1:] != (value,)  # not the host's name
            if is_body and not inner and isinstance(value, str):
                hint = "Write `simulated`, or a libvirt URI as `{libvirt: URI}`"
            yield document.problem((*path, *inner), message, hint)


SECRETS = (
    ("password",), ("password_hash",), ("k_g",), ("secret",), ("token",),
    ("application_credential_secret",), ("role",),
)  # fmt: skip
"""Keys whose values no message repeats."""


def _existing(value: Value, location: tuple[int | str, ...]) -> Path:
    """The part of pydantic's location that is in the file: names of unions and types fall out."""
    path: list[str | int] = []
    for part in location:
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path)


_EXPECTED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "bool_type": "true or false",
    "int_parsing_size": "a whole number of fewer digits",
    "ip_v4_address": "an IPv4 address",
    "ip_v4_network": "an IPv4 network such as 172.30.0.0/24, without host bits",
}


_MEANT = {
    word: f"Write {flag}, without quotes: YAML 1.2 knows true and false alone"
    for flag, words in (("true", "true yes on y t 1"), ("false", "false no off n f 0"))
    for word in words.split()
}
"""What people write for flags, and YAML 1.1 takes for them (yaml.org/type/bool.html)."""


def _message(detail: ErrorDetails, *, secret: bool) -> tuple[str, str]:
    got = "something else" if secret else shown(detail["input"])
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "value_error":
        message, _, hint = str(context["error"]).partition(". ")
        return message, hint
    if kind in _EXPECTED:
        meant = _MEANT.get(str(detail["input"]).lower(), "") if kind == "bool_type" else ""
        if kind == "list_type" and isinstance(detail["input"], str) and not secret:
            meant = f"Write `[{shown(detail['input'])[1:-1]}]`"
        return f"expected {_EXPECTED[kind]}, got {got}", meant
    if kind in ("enum", "literal_error"):
        expected = str(context["expected"]).replace("'", "")
        choices = expected.replace(" or ", ", ").split(", ")
        other = OTHER_DEVICES.get(str(detail["input"]).lower(), "")
        hint = f"Write {other!r}" if other in choices else _nearest(detail["input"], choices)
        return f"expected one of {expected}, got {got}", hint
    if kind == "string_pattern_mismatch":
        return _pattern_message(str(context["pattern"]), got, detail["input"])
    if kind in _BOUNDS:
        return _bound_message(kind, context, detail["input"], got)
    return f"expected {wanted(kind, context)}, got {got}", ""


def _bound_message(
    kind: str, context: Mapping[str, object], given: object, got: str
) -> tuple[str, str]:
    """Of what is too long, how long it is."""
    if isinstance(given, str) and kind in ("too_long", "too_short"):
        kind = f"string_{kind}"
    if isinstance(given, str | list) and kind in ("too_long", "string_too_long"):
        got = str(len(given))
    bound = _BOUNDS[kind].format(**context)
    if kind == "string_too_short" and context["min_length"] != 1:
        bound += "s"
    return f"expected {bound}, got {got}", ""


_BOUNDS = {
    "greater_than_equal": "at least {ge:.15g}",
    "less_than_equal": "at most {le:.15g}",
    "greater_than": "more than {gt:.15g}",
    "less_than": "less than {lt:.15g}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entry",
}


_FORMS = {
    NAME_PATTERN: "a name of lower-case letters, digits and hyphens, at most 63",
    PLACE_PATTERN: "the name of a host, or HOST:CONNECTION",
    LABEL_PATTERN: "a label's key of letters, digits and ._/- between them, at most 63",
    SERIAL_PATTERN: "a serial number of letters, digits, ._+- and blanks between them",
}


_LENGTHS = {NAME_PATTERN: MAX_NAME, LABEL_PATTERN: MAX_NAME}


def _pattern_message(pattern: str, got: str, given: object) -> tuple[str, str]:
    most = _LENGTHS.get(pattern, 0)
    if most and isinstance(given, str) and len(given) > most:
        return f"expected at most {most} characters, got {len(given)}", ""
    if pattern == NAME_PATTERN and isinstance(given, str):
        return f"expected {wanted_of(given)}, got {got}", ""
    return f"expected {_FORMS.get(pattern, f'text of the form {pattern}')}, got {got}", ""


def _meant(detail: ErrorDetails, error: ValidationError) -> str:
    """Of the keys of the section in which the unknown one is."""
    *path, key = detail["loc"]
    section = READ.get(error.title)
    if section is None:
        return ""
    if path[:1] == ["overrides"] and len(path) == 2 and key in section.model_fields:
        return f"`{key}` is for the whole group: write it beside `overrides`"
    for part in path:
        field = section.model_fields.get(str(part))
        section = next(_sections(field.annotation), section) if field is not None else section
    known = list(section.model_fields)
    meant = OTHER_WORDS.get(str(key), "")
    return did_you_mean(meant if meant in known else str(key), known)


OTHER_WORDS: Mapping[str, str] = {
    "network": "nics", "networks": "nics", "interfaces": "nics", "ram": "memory", "vcpus": "cpus",
    "cores": "cpus", "replicas": "count", "role": "flavor",
}  # fmt: skip
"""Words of other tools -> keys that are not spelled like them."""


def _sections(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _sections(each)


READ: Mapping[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        HostSection, NetworkSection, FlavorSection, BootProfileSection, BmcSection,
        NodeGroupSection, IronicSection, NovaSection, LabSection, ServiceSection,
    )
}  # fmt: skip
"""The sections that are read one by one."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them when there are few."""
    words = [str(word) for word in known]
    few = 0 < len(words) <= 12 and max(map(len, words)) <= MAX_LETTERS
    return _nearest(given, words) or (f"Known: {', '.join(sorted(words))}" if few else "")


def _nearest(given: object, words: list[str]) -> str:
    near = nearest(given, words)
    return f"Did you mean {near!r}?" if near else ""


def wanted(kind: str, context: Mapping[str, object]) -> str:
    """'a whole number': what a value had to be, for the type and context of an error of pydantic,
    whose own words are for programmers.
    """
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    if kind in ("enum", "literal_error"):
        return f"one of {context['expected']}"
    return _EXPECTED.get(kind) or _KINDS.get(kind.rpartition("_")[0], "another kind of value")


_KINDS = {
    "string": "text",
    "bytes": "text",
    "int": "a whole number",
    "int_from": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "mapping": "a mapping",
    "dataclass": "a mapping",
    "tuple": "a list",
    "set": "a list",
    "iterable": "a list",
    "uuid": "a UUID",
    "url": "a URL",
    "json": "JSON",
    "ip_v6": "an IPv6 address",
    "ip_any": "an IP address",
}
"""Beginning of an error's type -> what it expects."""
