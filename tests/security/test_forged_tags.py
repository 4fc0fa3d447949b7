"""Tags of domains and networks that someone else wrote: one that is none is no tag at all."""

from __future__ import annotations

from uuid import uuid4
from xml.etree import ElementTree as ET

import pytest

from nospoon.providers.libvirt.owner import NAMESPACE, owner_in


def tagged(**forged: str) -> ET.Element:
    root = ET.fromstring("<domain><metadata/></domain>")
    given = {"deployment": "d", "cluster": str(uuid4()), "name": "n", **forged}
    ET.SubElement(root[0], f"{{{NAMESPACE}}}owner", given)
    return root


@pytest.mark.parametrize(
    "forged",
    [
        {"generation": str(10**30)},
        {"generation": "-1"},
        {"generation": "9" * 5000},
        {"uid": str(1 << 64)},
        {"uid": "-2"},
        {"name": "1" * 5000},
        {"cluster-name": "1" * 5000},
    ],
)
def test_what_no_store_takes_is_no_tag(forged: dict[str, str]) -> None:
    assert owner_in(tagged()) is not None
    assert owner_in(tagged(**forged)) is None
