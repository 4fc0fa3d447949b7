"""Small words for building XML, so that what is built reads like what comes out."""

from __future__ import annotations

from xml.etree import ElementTree as ET


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
    """The root of XML that libvirt wrote."""
    return ET.fromstring(xml)  # noqa: S314  (libvirt's own output, without a DTD)
