"""A small Redfish client for tests: any method, any body, and what came back."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

from nospoon.services.bmcs.ports import BmcConfig

SYSTEMS = "/redfish/v1/Systems"


@dataclass(frozen=True)
class Answer:
    """An HTTP response; `json` is {} for an empty or another body."""

    status: int
    headers: dict[str, str]
    data: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.data) if self.data.startswith(b"{") else {}

    @property
    def message(self) -> str:
        """The message id of the error, without its registry."""
        info = self.json["error"]["@Message.ExtendedInfo"]
        return str(info[0]["MessageId"].rpartition(".")[2])


def basic(config: BmcConfig, password: str | None = None) -> dict[str, str]:
    text = f"{config.bmc.username}:{config.password if password is None else password}"
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@dataclass
class Client:
    """Requests to one listener; `headers` go with each."""

    config: BmcConfig
    headers: dict[str, str]

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        return await asyncio.to_thread(self._ask, method, path, body, headers)

    def _ask(self, method: str, path: str, body: object, headers: dict[str, str]) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        line = self._line()
        try:
            line.request(method, path, data, sent)
            got = line.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            line.close()

    def _line(self) -> http.client.HTTPConnection:
        """Over TLS where it is served so."""
        bmc = self.config.bmc
        if not bmc.tls:
            return http.client.HTTPConnection(bmc.address, bmc.redfish_port, timeout=30)
        return http.client.HTTPSConnection(
            bmc.address, bmc.redfish_port, timeout=30, context=_trusting()
        )

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)


def client(config: BmcConfig) -> Client:
    return Client(config, basic(config))


def system_of(config: BmcConfig) -> str:
    return f"{SYSTEMS}/{config.bmc.uuid}"


@dataclass(frozen=True)
class System:
    """Requests to a node's System, as its BMC's account; `bmc`: a row of `nospoon bmc list`."""

    bmc: dict[str, str]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the answer, None without any; `path` below the System.

        Raises `urllib.error.HTTPError` for an answer that is an error.
        """
        pair = f"{self.bmc['username']}:{self.bmc['password']}"
        headers = {
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Content-Type": "application/json",
        }
        data = json.dumps(body).encode() if body is not None else None
        request = Request(self.bmc["redfish"] + path, data, headers, method=method)
        with urlopen(request, timeout=30, context=_trusting()) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _trusting() -> ssl.SSLContext:
    """Anybody's certificate will do: those of BMCs are signed by themselves."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
