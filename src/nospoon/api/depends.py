"""What routes are handed: the controller and the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.requests import HTTPConnection

from nospoon.api.peer import Members
from nospoon.control.controller import Controller
from nospoon.model.principal import Principal


def controller_of(connection: HTTPConnection) -> Controller:
    """The controller that this application serves."""
    controller: Controller = connection.app.state.controller
    return controller


def caller(connection: HTTPConnection) -> Principal:
    """Who calls: the gate has let them in. Raises `Forbidden`."""
    members: Members = connection.app.state.members
    return members.caller_of(connection.scope)


Controlled = Annotated[Controller, Depends(controller_of)]
Called = Annotated[Principal, Depends(caller)]
