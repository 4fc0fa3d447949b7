"""Keys, and shapes of machines and links, as earlier versions wrote them, read as today's.

They outlive the version that wrote them: in the store, beside containers, with servers of clouds,
and of simulated hosts in a file. Whatever is written is in today's notation, and whatever is read
goes through here. Fields that are none any more are passed over.

    earlier                 today's
    machine: boot_iso       boot: script, or what the connection declares for those that do not ask
    machine: pool           (a matter of its provider)
    NIC: bridge             network
    link: bridge            name
    key: host               place
"""

from __future__ import annotations

import msgspec

from nospoon.model.boot import BootMethod
from nospoon.model.declared import Declared
from nospoon.model.resources.machines import Machine

_MACHINE = msgspec.json.Decoder(Machine)


def machine(text: str, declares: Declared) -> Machine:
    """A machine of a connection that `declares` so. Raises `msgspec.DecodeError`."""
    try:
        return _MACHINE.decode(text)  # in one step: there may be ten thousand
    except msgspec.ValidationError:
        return of_record(msgspec.json.decode(text), declares)


def of_record(record: object, declares: Declared) -> Machine:
    """The same of what JSON has become. Raises `msgspec.ValidationError`."""
    return msgspec.convert(renewed(record, declares), Machine)


def renewed(record: object, declares: Declared) -> object:
    """The record of a machine in today's notation; what is no record is for decoding to refuse."""
    if not isinstance(record, dict):
        return record
    asks = record.get("boot_iso") is True
    boot = BootMethod.SCRIPT if asks else declares.boot_of(asks=False)
    found = {"boot": boot.value, **record}
    if isinstance(nics := record.get("nics"), list | tuple):
        found["nics"] = [_with(nic, "network", "bridge") for nic in nics]
    return found


def renewed_link(record: object) -> object:
    """The record of a link in today's notation."""
    return _with(record, "name", "bridge")


def renewed_key(record: object) -> object:
    """The record of a key in today's notation."""
    return _with(record, "place", "host")


def _with(record: object, name: str, earlier: str) -> object:
    """With a field that had another name."""
    if not isinstance(record, dict) or earlier not in record:
        return record
    return {name: record[earlier], **record}
