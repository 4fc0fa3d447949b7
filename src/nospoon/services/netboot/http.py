"""The HTTP side of network boot: what to boot, the files for it, and the probe's report.

    GET  /boot/{uuid}/ipxe, /boot/mac/{mac}/ipxe    an iPXE script
    GET  /boot/{uuid}/disk                          its disk is started without the boot image
    GET  /boot/{uuid}/network                       started from the network of its relay: its
                                                    boot profile, or nothing
    GET  /boot/{uuid}/grub, /boot/mac/{mac}/grub    a GRUB configuration
    GET  /files/{uuid}/{name}                       a file of what it boots now; Range works
    POST /probe/{uuid}/{token}                      the probe's record, JSON
    /lab/…                                          machines of recipes: see `lab`

A machine learns of itself only (`peers`), and HEAD uses up nothing. Others that ask, unknown
machines, malformed names and files that aren't offered are 404; while the daemon has not read its
store yet, everything is 503 with Retry-After, and the scripts try again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nospoon.errors import NospoonError
from nospoon.model.boot import BOOT_URL, BootDevice
from nospoon.probe.record import decode
from nospoon.protocols.ipxe import grub, image, script
from nospoon.protocols.ipxe.offer import Kernel, Offer
from nospoon.runtime.clock import Clock, monotonic
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.request_turns import in_turns, source_of
from nospoon.runtime.slices import Slices
from nospoon.services.netboot.bodies import TOO_LARGE, body_of
from nospoon.services.netboot.inventory import Inventoried, inventory_routes
from nospoon.services.netboot.lab import LabMachines, lab_routes
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer, BootAuthority, ServedFile, ServedProfile

log = RateLimitedLog()

RETRY_SECONDS = 2
MOST_SENT = 8
"""Files that are sent to one machine behind a relay at a time: all of a relay's machines are one
client, whose connections it would have otherwise.
"""
SLIRP_HOST = "10.0.2.2"
"""This machine as guests with user-mode networking see it (QEMU's -netdev user)."""

_MAC = re.compile(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOT_FOUND = 404
NO_CONTENT = 204
BAD_REQUEST = 400
UNAVAILABLE = 503


def create_app(
    authority: BootAuthority,
    peers: Peers,
    *,
    ready: Callable[[], bool],
    lab: LabMachines | None = None,
    inventories: Inventoried | None = None,
    now: Clock = monotonic,
) -> ASGIApp:
    """The application; `ready` says whether the authority knows its machines yet. `lab`: where
    machines of recipes are served; `inventories`: registered ones whose inventory is taken.
    `now`: by which slices of the loop's turns are counted.

    To be served by `HttpListeners`: GRUB wants header names as it knows them.
    """
    service = _Service(authority, peers, ready)
    of_labs = inventory_routes(inventories, ready) if inventories is not None else []
    of_labs += lab_routes(lab, ready) if lab is not None else []
    return in_turns(
        _capitalized(
            Starlette(
                routes=[
                    Route("/boot/mac/{mac}/{loader}", service.boot, methods=["GET"]),
                    Route("/boot/{uuid}/{loader}", service.boot, methods=["GET"]),
                    Route("/files/{uuid}/{name}", service.file, methods=["GET"]),
                    Route("/probe/{uuid}/{token}", service.report, methods=["POST"]),
                    *of_labs,
                ]
            )
        ),
        Slices(now=now),
        _turn_of,
    )


def _turn_of(scope: Scope) -> Hashable:
    """The source of a request, or the relay that it came through."""
    return source_of(scope) or scope.get(THROUGH)


def _capitalized(app: ASGIApp) -> ASGIApp:
    """Header names in capitals: GRUB 2.06 knows "Content-Length" and no other spelling of it, and
    without a length it waits half a minute for more.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def capital(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = [(name.title(), value) for name, value in message["headers"]]
                message = {**message, "headers": names}
            await send(message)

        await app(scope, receive, capital)

    return wrapped


THROUGH = "nospoon.relay"
"""Of a request's scope: which relay it came through."""
RENDERERS: dict[str, Callable[[Offer], str]] = {"ipxe": script.answer, "grub": grub.answer}


class _File(FileResponse):
    """`counted`: while it is sent."""

    def __init__(
        self, path: str, counted: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(path, media_type="application/octet-stream")
        self._sent = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._sent():
            await super().__call__(scope, receive, send)


class _Service:
    def __init__(self, authority: BootAuthority, peers: Peers, ready: Callable[[], bool]) -> None:
        self._authority, self._peers, self._ready = authority, peers, ready
        self._sending = Counter[UUID]()
        """Files that are sent to machines behind relays."""

    async def boot(self, request: Request) -> Response:
        """The script or configuration for a machine named by UUID or MAC."""
        if not self._ready():
            return _later("nospoon is starting")
        loader = request.path_params["loader"]
        answer = self._answer(request)
        if answer is not None and answer.starts_disk and loader == image.DISK:
            return self._leave(request, answer.uuid)
        if answer is not None and answer.boot_image and loader == script.NETWORK:
            return PlainTextResponse(script.answer(_of_network(answer)))
        if answer is None or loader not in RENDERERS:
            return _unknown()
        if request.client is None and not (answer.boot_image and loader == "ipxe"):
            return _unknown()  # through a relay, boot images ask, and no other loader
        named = answer.secret or answer.uuid
        if answer.boot_image and loader == "ipxe":
            all_offers = offers(answer, http_place(image.BASE, named), base=image.BASE)
            text = image.answer(all_offers, disk=str(named) if answer.starts_disk else "")
        else:
            place, base = (grub_place if loader == "grub" else http_place), _base(request, answer)
            text = RENDERERS[loader](offer(answer, place(base, named), base=base))
        if request.method == "HEAD":  # Starlette answers it where it answers GET
            return PlainTextResponse(text)
        try:
            await self._authority.booted(answer.uuid)
        except NospoonError as error:
            log.warning("a boot could not be noted", uuid=str(answer.uuid), why=str(error))
            return _later(error.message)
        uuid = str(answer.uuid)
        log.info("sent boot script", of=uuid, uuid=uuid, device=answer.device, by=loader)
        return PlainTextResponse(text)

    def _leave(self, request: Request, uuid: UUID) -> Response:
        if request.method != "HEAD":
            self._authority.leaves(uuid)
            log.info("a machine leaves the boot image", uuid=str(uuid))
        return PlainTextResponse(image.left())

    async def file(self, request: Request) -> Response:
        """A file that this machine's profile names, and no other."""
        if not self._ready():
            return _later("nospoon is starting")
        answer = self._answer(request)
        served = _offered(answer) if answer is not None else ()
        found = [each for each in served if each.name == request.path_params["name"]]
        if not found or not Path(found[0].path).is_file():
            return _unknown()
        if request.client is not None or answer is None:
            return _File(found[0].path)
        if self._sending[answer.uuid] >= MOST_SENT:
            return _later("other files are being sent to this machine")
        return _File(found[0].path, partial(self._counted, answer.uuid))

    @contextmanager
    def _counted(self, machine: UUID) -> Iterator[None]:
        self._sending[machine] += 1
        try:
            yield
        finally:
            self._sending[machine] -= 1
            if not self._sending[machine]:
                del self._sending[machine]

    async def report(self, request: Request) -> Response:
        """Take the probe's record, if it is one and of this machine. Only this boot's probe knows
        the token, and it is taken once.
        """
        if not self._ready():
            return _later("nospoon is starting")
        answer, token = self._named(request), request.path_params["token"]
        if answer is None or not self._authority.awaits(answer.uuid, token):
            return _unknown()
        if request.client is None and answer.secret is None:
            return _unknown()
        body = await body_of(request)
        if body is None:
            return PlainTextResponse("a record is shorter\n", TOO_LARGE)
        record = decode(body)
        if record is None or record.uuid.lower() != str(answer.uuid):
            return PlainTextResponse("no record of this machine\n", BAD_REQUEST)
        if not self._authority.awaits(answer.uuid, token):  # someone was faster meanwhile
            return _unknown()
        await self._authority.reported(answer.uuid, msgspec.to_builtins(record))
        return Response(status_code=NO_CONTENT)

    def _answer(self, request: Request) -> BootAnswer | None:
        """For the machine that is named, if it is the one that asks."""
        answer = self._named(request)
        if answer is None or answer.secret is not None:
            return answer
        if request.client is None:  # through a relay, where anyone may ask
            return None
        peer, here = request.client, request.scope["server"]
        if self._peers.may_ask(answer.uuid, peer=(peer.host, peer.port), here=(here[0], here[1])):
            return answer
        log.info("refused a boot script", uuid=str(answer.uuid), peer=peer.host)
        return None

    def _named(self, request: Request) -> BootAnswer | None:
        mac = request.path_params.get("mac", "").lower()
        uuid = request.path_params.get("uuid", "").lower()
        if _MAC.fullmatch(mac):
            return self._authority.answer(mac=mac.replace("-", ":"))
        if _UUID.fullmatch(uuid):
            return self._authority.answer(uuid=UUID(uuid))
        return None


Place = Callable[[ServedFile | str], str]
"""Where a loader fetches a file."""


def http_place(base: str, uuid: UUID) -> Place:
    """Files as URLs below "http://address:port"."""

    def place(file: ServedFile | str) -> str:
        return file if isinstance(file, str) else f"{base}/files/{uuid}/{quote(file.name)}"

    return place


def grub_place(base: str, uuid: UUID) -> Place:
    """The same URLs as GRUB writes them: "(http,address:port)/path"."""
    by_url = http_place(base, uuid)

    def place(file: ServedFile | str) -> str:
        scheme, _, rest = by_url(file).partition("://")
        server, _, path = rest.partition("/")
        return f"({scheme},{server})/{path}"

    return place


def offer(answer: BootAnswer, place: Place, *, base: str = "") -> Offer:
    """An answer in the words of loaders. `base`: our URL for what a command line names of it."""
    if answer.device is BootDevice.CDROM and answer.medium is not None:
        return Offer(answer.device, uri=place(answer.medium))
    profile = answer.profile if answer.device is BootDevice.NETWORK else None
    if profile is None:
        return Offer(answer.device, uri=answer.uri)
    initrds = tuple(place(initrd) for initrd in profile.initrd)
    cmdline = profile.cmdline.replace(BOOT_URL, base)
    kernel = Kernel(profile.name, place(profile.kernel), initrds, cmdline)
    return Offer(answer.device, kernel)


def _of_network(answer: BootAnswer) -> Offer:
    """For a machine that the boot image, or its firmware, had look for others on its networks. That
    was observed when it asked for that: this uses up nothing.
    """
    profiles = (each.profile for each in (answer, *answer.after))
    profile = next(filter(None, profiles), None)
    found = replace(answer, device=BootDevice.NETWORK, profile=profile)
    return offer(found, http_place(image.BASE, answer.secret or answer.uuid), base=image.BASE)


def offers(answer: BootAnswer, place: Place, *, base: str = "") -> list[Offer]:
    """An answer to the boot image, with all that it tries in turn."""
    return [offer(each, place, base=base) for each in (answer, *answer.after)]


def _offered(answer: BootAnswer) -> tuple[ServedFile, ...]:
    """The files that a machine may fetch now."""
    profiles = [each.profile for each in (answer, *answer.after) if each.profile is not None]
    medium = (answer.medium,) if answer.medium is not None else ()
    return (*medium, *(file for each in profiles for file in served_files(each)))


def served_files(profile: ServedProfile) -> tuple[ServedFile, ...]:
    """The files of a profile that are ours to serve."""
    return tuple(each for each in (profile.kernel, *profile.initrd) if isinstance(each, ServedFile))


def _base(request: Request, answer: BootAnswer) -> str:
    """Our address as the machine reaches it. Not from the Host header: GRUB leaves out the port."""
    host, port = request.scope["server"]
    seen = SLIRP_HOST if answer.user_mode and ip_address(host).is_loopback else host
    return f"http://{seen}:{port}"


def _unknown() -> Response:
    # GRUB runs the text of a refusal too: to it, this is a comment
    return PlainTextResponse("# nothing of that name is to be booted here\n", NOT_FOUND)


def _later(why: str) -> Response:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return PlainTextResponse(f"# {why}; try again\n", UNAVAILABLE, headers=headers)
