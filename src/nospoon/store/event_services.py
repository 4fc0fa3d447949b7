"""Redfish event services with their subscriptions: a row is one account at one endpoint."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, insert, select

from nospoon.bmc.events import EventSettings
from nospoon.model.decoders import meet
from nospoon.store import tables

services = tables.event_services


def put(connection: Connection, settings: EventSettings) -> None:
    """Insert or replace; one that is as by default is not kept."""
    place, account = settings.key
    here = (services.c.place == place, services.c.account == account)
    connection.execute(delete(services).where(*here))
    if settings != EventSettings(place, account):
        row = {"place": place, "account": account, "record": msgspec.to_builtins(settings)}
        connection.execute(insert(services), row)


def everything(connection: Connection) -> list[EventSettings]:
    """All that were kept."""
    query = select(services.c.record)
    return [msgspec.convert(record, EventSettings) for (record,) in connection.execute(query)]


meet(EventSettings)
