"""What routes are handed: the controller and the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.requests import HTTPConnection

from nospoon.api.peer import Caller, caller_of
from nospoon.control.controller import Controller


def controller_of(connection: HTTPConnection) -> Controller:
    """The controller that this application serves."""
    controller: Controller = connection.app.state.controller
    return controller


def caller(connection: HTTPConnection) -> Caller:
    """Who calls: the gate has let them in. Raises `Forbidden`."""
    return caller_of(connection.scope)


Controlled = Annotated[Controller, Depends(controller_of)]
Called = Annotated[Caller, Depends(caller)]
