"""Small words for building XML, so that what is built reads like what comes out."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from nospoon.errors import ProviderError

PIECE = 16 << 10
"""Characters that are parsed before others have a turn: the parser itself lets them have none."""
LONGEST_NAMESPACE = 1000
MOST_TAGS = 1 << 17
"""Beginnings and ends of elements: a machine with hundreds of devices has some thousand."""


class _Building(ET.TreeBuilder):
    def start_ns(self, prefix: str, uri: str) -> None:
        """Names of elements have that of their namespace, each of them."""
        if len(uri) > LONGEST_NAMESPACE:
            raise ProviderError(
                f"libvirt's XML has a namespace {prefix!r} of {len(uri)} characters; at most "
                f"{LONGEST_NAMESPACE} are read"
            )


def element(name: str, /, *children: ET.Element | None, **attributes: str) -> ET.Element:
    """An element with attributes and children; a child that is None is left out."""
    made = ET.Element(name, attributes)
    made.extend([child for child in children if child is not None])
    return made


def leaf(name: str, text: str, /, **attributes: str) -> ET.Element:
    """An element with text."""
    made = ET.Element(name, attributes)
    made.text = text
    return made


def text_of(root: ET.Element, path: str, default: str = "") -> str:
    return (root.findtext(path) or default).strip()


def attribute_of(root: ET.Element, path: str, name: str, default: str = "") -> str:
    found = root.find(path)
    return default if found is None else found.get(name, default)


def written(root: ET.Element) -> str:
    return ET.tostring(root, encoding="unicode")


def parsed(xml: str) -> ET.Element:
    """The root of XML that libvirt wrote, without a DTD. Raises `ProviderError`: what owners of
    machines put into their metadata may be anything.
    """
    if (tags := xml.count("<")) > MOST_TAGS:
        raise ProviderError(f"libvirt's XML has {tags} tags; at most {MOST_TAGS} are read")
    parser = ET.XMLParser(target=_Building())  # noqa: S314  (libvirt refuses entities that grow)
    try:
        for begin in range(0, len(xml), PIECE):
            parser.feed(xml[begin : begin + PIECE])
        return parser.close()
    except ET.ParseError as error:
        line, column = error.position
        raise ProviderError(
            f"libvirt's XML is not well-formed with namespaces: line {line}, column {column}"
        ) from error
