"""Parameters of actions: a table an action, and what is told of those that do not fit it.

Rules (DSP0266 §7.11; messages of DSP8011's Base registry):

- One that the action does not know is refused, whatever its value is.
- null is the same as none where the schema lets it be null, which is where it may be left out.
- Types are JSON's: no number is a string, and true is not a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nospoon.services.bmcs.redfish.messages.errors import RedfishError, told

HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class Parameter:
    """`allowed`: its values, () for all. `like`: all of a text must match it, `shape` says how.

    `secret`: its value is not told to anybody.
    """

    name: str
    kind: type = str
    required: bool = False
    allowed: tuple[str, ...] = ()
    like: re.Pattern[str] | None = None
    shape: str = ""
    secret: bool = False


class Given(dict[str, object]):
    """What was given of an action's parameters, each of the type that its table says."""

    def text(self, name: str, default: str = "") -> str:
        value = self.get(name, default)
        assert isinstance(value, str), f"the table has {name} as a text"
        return value

    def items_of(self, name: str) -> list[object]:
        """Of a list, [] where it was not given."""
        value = self.get(name, [])
        assert isinstance(value, list), f"the table has {name} as a list"
        return value


@dataclass(frozen=True, slots=True)
class Action:
    """`name`: as the schema's, for example ComputerSystem.Reset.

    `others`: parameters that the schema has and this service has not.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    others: frozenset[str] = frozenset()

    def read(self, body: Mapping[str, object]) -> Given:
        """The parameters that were given. Raises `RedfishError`."""
        known = {each.name for each in self.parameters}
        for name in body:
            if name in self.others:
                raise self.not_supported(name, "Leave it out.")
            if name not in known and not name.startswith("@odata."):
                raise self.unknown(name)
        for each in self.parameters:
            if each.required and each.name not in body:
                raise self.missing(each.name)
        return Given(
            (each.name, self._value(each, body[each.name]))
            for each in self.parameters
            if each.name in body and (each.required or body[each.name] is not None)
        )

    def _value(self, parameter: Parameter, value: object) -> object:
        name, shown = parameter.name, HIDDEN if parameter.secret else value
        if not isinstance(value, parameter.kind) or (
            isinstance(value, bool) and parameter.kind is not bool
        ):
            raise self.wrong_type(name, shown)
        if parameter.allowed and value not in parameter.allowed:
            raise self.not_in_list(name, shown, parameter.allowed)
        if parameter.like is not None and not parameter.like.fullmatch(str(value)):
            raise self.wrong_format(name, shown, parameter.shape)
        return value

    def unknown(self, name: str) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterUnknown",
            self.name,
            name,
            resolution=f"Give no others than {', '.join(each.name for each in self.parameters)}."
            if self.parameters
            else "The action has no parameters: remove it.",
        )

    def missing(self, name: str) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterMissing",
            self.name,
            name,
            resolution="Supply the action with the required parameter in the request body.",
        )

    def not_supported(self, name: str, resolution: str) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterNotSupported",
            name,
            self.name,
            resolution=resolution,
        )

    def wrong_type(self, name: str, value: object) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterValueTypeError",
            told(value),
            name,
            self.name,
            resolution="Correct the value for the parameter in the request body.",
        )

    def wrong_format(self, name: str, value: object, shape: str) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterValueFormatError",
            told(value),
            name,
            self.name,
            resolution=f"Give {shape}.",
        )

    def not_in_list(self, name: str, value: object, allowed: tuple[str, ...]) -> RedfishError:
        return RedfishError(
            400,
            "ActionParameterValueNotInList",
            told(value),
            name,
            self.name,
            resolution=f"Choose one of {', '.join(allowed)}.",
        )
