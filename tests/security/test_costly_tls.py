"""TLS: what clients, and owners of certificates, may choose, and what it costs others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import httptools
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette

from nospoon.control.content.fetch import Access
from nospoon.errors import ProviderError
from nospoon.runtime import clock, http
from nospoon.runtime.handshakes import AsAsyncio, Handshakes
from nospoon.runtime.http import request
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.received import Received
from nospoon.runtime.serve import Contexts
from nospoon.runtime.tls import (
    LONGEST,
    SESSIONS,
    client_context,
    private_key,
    private_pem,
    why_unusable,
)
from nospoon.services.agents.listeners import _opened
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import bench, free_port
from nospoon.testing.certificates import written


def shaken(config: BmcConfig, group: str) -> bool:
    """Whether a client that has no other group for its key exchange gets through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ecdh_curve(group)
    place = config.bmc.address, config.bmc.redfish_port
    with socket.create_connection(place, 20) as line:
        try:
            context.wrap_socket(line).close()
        except ssl.SSLError:
            return False
    return True


async def test_clients_do_not_choose_costly_groups(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path / "kept") as b:
        assert await asyncio.to_thread(shaken, b.first, "prime256v1")
        assert not await asyncio.to_thread(shaken, b.first, "secp521r1")
        certificate, key = written(tmp_path, "other")
        (tmp_path / "kept" / f"{b.first.bmc.address}.pem").write_bytes(
            key.read_bytes() + certificate.read_bytes()
        )
        b.service.listeners.renew_certificate(b.first.bmc)
        assert await asyncio.to_thread(shaken, b.first, "prime256v1")
        assert not await asyncio.to_thread(shaken, b.first, "secp521r1")


def leave_sessions(place: tuple[str, int], count: int) -> None:
    """Sessions that the server has to keep: TLS 1.2 without tickets (RFC 5246 §7.3), ended well."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    for _ in range(count):
        with socket.create_connection(place, 20) as line, context.wrap_socket(line) as secured:
            secured.sendall(b"GET /redfish/v1 HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\n\r\n")
            while secured.recv(1 << 16):
                pass
            with contextlib.suppress(OSError):
                secured.unwrap()


async def test_sessions_that_clients_leave_are_not_kept(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path) as b:
        place = b.first.bmc.address, b.first.bmc.redfish_port
        await asyncio.to_thread(leave_sessions, place, 4 * SESSIONS)
        gc.collect()
        contexts = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
        kept = sum(each.session_stats()["number"] for each in contexts)
        assert 0 < kept <= 2 * SESSIONS


async def test_a_certificate_of_agents_is_in_no_directory_of_all_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read again, for sessions that clients leave, where it had been in /tmp: who had put a
    FIFO there stopped the daemon for good.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listener = await _opened(Starlette(), ("127.0.0.1", 0, True))
    try:
        contexts = listener.server._server.contexts
        assert contexts is not None
        assert not contexts._files[0].is_relative_to(tmp_path)
        first, place = contexts(), ("127.0.0.1", int(listener.url.rpartition(":")[2]))
        await asyncio.to_thread(leave_sessions, place, 2 * SESSIONS)
        assert contexts() is not first
        shown = await asyncio.to_thread(ssl.get_server_certificate, place)
        assert shown == listener.certificate
    finally:
        await listener.server.close()
    held = contexts._files[0]
    assert held.exists()
    del listener, contexts, first
    gc.collect()
    assert not held.exists()


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8)
    short = size < 0x80
    return (
        bytes([tag]) + (bytes([size]) if short else bytes([0x80 | len(length)]) + length) + content
    )


def pem_of(*numbers: int) -> bytes:
    """An RSA key (RFC 8017, A.1.2)."""
    whole = b"".join(der(2, each.to_bytes(each.bit_length() // 8 + 1)) for each in (0, *numbers))
    text = base64.encodebytes(der(0x30, whole))
    return b"-----BEGIN RSA PRIVATE KEY-----\n" + text + b"-----END RSA PRIVATE KEY-----\n"


NUMBERS = ("n", "e", "d", "p", "q", "dmp1", "dmq1", "iqmp")


@pytest.mark.parametrize("which", ["d", "dmp1", "dmq1", "iqmp"])
def test_rsa_keys_with_numbers_larger_than_they_have_to_be_are_refused(which: str) -> None:
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_numbers()
    found = {name: getattr(private, name, 0) for name in NUMBERS}
    found |= {"n": private.public_numbers.n, "e": 65537}
    assert private_pem(private_key(pem_of(*found.values()))) == private_pem(key)
    modulus = {"dmp1": private.p - 1, "dmq1": private.q - 1, "iqmp": private.p}
    found[which] += modulus.get(which, (private.p - 1) * (private.q - 1)) << 100_000
    with pytest.raises(ValueError, match="do not belong together"):
        private_key(pem_of(*found.values()))


def test_keys_on_curves_that_no_client_takes_are_refused() -> None:
    for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()):
        assert private_key(private_pem(ec.generate_private_key(curve)))
    with pytest.raises(ValueError, match="expected a key on one of secp256r1"):
        private_key(private_pem(ec.generate_private_key(ec.BrainpoolP256R1())))


def test_authorities_are_read_once_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_context(verify=False) is client_context(verify=False)
    before = client_context(verify=True)
    assert client_context(verify=True) is before
    certificate, _ = written(tmp_path, "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    after = client_context(verify=True)
    assert after is not before
    assert client_context(verify=False).verify_mode is ssl.CERT_NONE


async def test_requests_and_downloads_do_not_read_authorities_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading them takes tens of milliseconds of a processor."""
    known = client_context(verify=True)
    again = lambda *_: pytest.fail("they are read again")  # noqa: E731  (of no use elsewhere)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", again)
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", again)
    port = free_port(socket.SOCK_STREAM)
    with pytest.raises(ProviderError, match="does not answer"):
        await request("GET", f"https://127.0.0.1:{port}/", verify=True, patience=5)
    with pytest.raises(ProviderError, match="does not answer"):
        await request("GET", f"https://127.0.0.1:{port}/", verify=False, patience=5)
    assert Access().tls() is known


async def test_authorities_that_changed_are_read_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the event loop 30 ms."""
    certificate, _ = written(tmp_path, "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    threads, load = list[int](), ssl.SSLContext.load_verify_locations

    def noted(context: ssl.SSLContext, *files: str) -> None:
        threads.append(threading.get_ident())
        load(context, *files)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", noted)
    port = free_port(socket.SOCK_STREAM)
    with pytest.raises(ProviderError, match="does not answer"):
        await request("GET", f"https://127.0.0.1:{port}/", verify=True, patience=5)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@contextmanager
def serving(said: bytes, tmp_path: Path, *, group: str = "prime256v1") -> Iterator[str]:
    """A server that a BMC client chose, as the destination of events; its URL."""
    certificate, key = written(tmp_path, "hostile")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_ecdh_curve(group)

    def answer(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as line:
            line.settimeout(20)
            with context.wrap_socket(line, server_side=True) as secured:
                secured.recv(1 << 16)
                secured.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"


async def test_servers_do_not_choose_costly_groups(tmp_path: Path) -> None:
    """Of finite fields, one of 8,192 bits took 0.15 s of the event loop, one of 10,000 a second."""
    with serving(NOTHING, tmp_path) as url:
        assert (await request("GET", url, verify=False, patience=20)).status == 204
    with (
        serving(NOTHING, tmp_path, group="secp521r1") as url,
        pytest.raises(ProviderError, match="does not answer"),
    ):
        await request("GET", url, verify=False, patience=20)
    for verify in (False, True):
        ciphers = client_context(verify=verify).get_ciphers()
        assert {each["kea"] for each in ciphers} == {"kx-any", "kx-ecdhe"}


async def test_handshakes_with_servers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of RSA with an exponent as long as itself takes ten milliseconds of each, and a server
    may have dozens of connections get so far at one moment.
    """
    ticks, turn, steps = count(), 0, list[int]()
    turns = Handshakes(now=lambda: float(next(ticks))), Received()
    monkeypatch.setattr(http, "_shared", lambda: turns)
    shake = AsAsyncio._do_handshake

    def noted(self: object) -> None:
        steps.append(turn)
        shake(self)

    monkeypatch.setattr(AsAsyncio, "_do_handshake", noted)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        host, port = listener.getsockname()
        context = client_context(verify=False)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(http.connected(host, port, context, ANYWHERE)) for _ in range(16)
            ]
            while len(steps) < len(tasks):
                await asyncio.sleep(0)
                turn += 1
            for each in tasks:
                each.cancel()
    assert sorted(set(steps)) == sorted(steps)


async def test_a_server_shows_not_too_many_certificates(tmp_path: Path) -> None:
    """Hundreds of small ones, of which none counted, took 60 ms of the event loop, in one piece."""
    certificate, key = written(tmp_path, "short")
    chain = tmp_path / "chain"
    chain.write_text(certificate.read_text() * 200)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ProviderError, match="certificates are longer than 32768 bytes"):
            await request("GET", f"https://127.0.0.1:{port}/", verify=False, patience=20)


def test_no_side_asks_for_handshakes_again_and_again(tmp_path: Path) -> None:
    """A server of TLS 1.2 has one done for nine bytes, after the first one, too."""
    contexts = [client_context(verify=each) for each in (False, True)]
    contexts.append(Contexts(*written(tmp_path, "own"))())
    assert all(each.options & ssl.OP_NO_RENEGOTIATION for each in contexts)


async def test_answers_are_looked_at_a_little_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, received = list[int](), list[int]()

    class Parser:
        def __init__(self, told: object) -> None:
            self._parser = httptools.HttpResponseParser(told)
            self.get_status_code = self._parser.get_status_code

        def feed_data(self, data: bytes) -> None:
            fed.append(len(data))
            self._parser.feed_data(data)

    class Tls(http._Tls):
        def buffer_updated(self, nbytes: int) -> None:
            received.append(nbytes)
            super().buffer_updated(nbytes)

    monkeypatch.setattr(http, "_Tls", Tls)
    monkeypatch.setattr(http, "httptools", SimpleNamespace(HttpResponseParser=Parser))
    chunks = b"1\r\na\r\n" * 8000 + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(head + chunks, tmp_path) as url:
        answer = await request("GET", url, verify=False, patience=60)
    assert answer.body == b"a" * 8000
    assert sum(fed) == len(head + chunks)
    assert max(fed) <= 2048
    assert max(received) <= 1024


@pytest.mark.parametrize("which", ["certificate", "key"])
def test_of_a_long_file_that_was_uploaded_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A member's may have as many bytes as the member's files together: 200 GiB."""
    pair = dict(zip(("certificate", "key"), written(tmp_path, "c"), strict=True))
    assert why_unusable(*pair.values(), now=clock.unix()) is None
    with pair[which].open("r+b") as file:
        file.truncate(LONGEST + 1)
    read: list[Path] = []
    monkeypatch.setattr(Path, "read_bytes", read.append)
    wrong = which, f"it has more than {LONGEST} bytes"
    assert why_unusable(*pair.values(), now=clock.unix()) == wrong
    assert read == []
