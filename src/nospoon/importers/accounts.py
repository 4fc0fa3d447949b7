"""Accounts of BMCs, as far as ours take them: other tools know longer names and passwords."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from nospoon.clusterfile.bmcs import AccountName, Password

_TAKEN: dict[str, tuple[TypeAdapter[str], str]] = {
    "username": (TypeAdapter(AccountName), "a BMC takes 1 to 16 bytes without colons"),
    "password": (TypeAdapter(Password), "a BMC takes 1 to 20 bytes"),
}


def account(given: Mapping[str, tuple[str, object]], left_out: list[str]) -> dict[str, str]:
    """`username` and `password`, as far as they can be; the rest goes into `left_out`.

    `given`: for each of them its place in what is imported, and its value.
    """
    taken: dict[str, str] = {}
    for name, (where, value) in given.items():
        kind, why = _TAKEN[name]
        try:
            taken[name] = kind.validate_python(str(value))
        except ValidationError:
            left_out.append(f"{where}: {why}")
    return taken
