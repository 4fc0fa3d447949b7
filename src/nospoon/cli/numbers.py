"""Options that are numbers: what click takes for one and JSON cannot tell (nan, inf) is refused."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.types.FloatParamType):
    """Any number but those that are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is no number", param, ctx)


class FiniteRange(click.FloatRange):
    """A range: nan is neither below nor above it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is no number", param, ctx)


FINITE = Finite()
