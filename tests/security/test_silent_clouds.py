"""Calls to a cloud that is silent, or slow, keep its user's threads only, and each one ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler

import pytest
from tests.security.test_cloud_answers import giving, ironic, service

pytest.importorskip("openstack")
import requests

from nospoon.model.ironic import IronicPlace
from nospoon.providers.bounded_http import BoundedAdapter
from nospoon.providers.cloud_calls import (
    LARGE,
    LARGE_PER_USER,
    PER_USER,
    REMEMBERED,
    Calls,
    Clouds,
    Means,
    large_places,
    wait_for_place,
    within,
)
from nospoon.providers.ironic.api import Api

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]
ONE, OTHER = 1001, 1002


@contextmanager
def held() -> Iterator[threading.Event]:
    """Something that answers are waiting for, at most until the end."""
    let = threading.Event()
    try:
        yield let
    finally:
        let.set()


async def test_one_users_silent_cloud_delays_no_one_else_there() -> None:
    clouds = Clouds()
    with held() as let:

        def silent(to: BaseHTTPRequestHandler) -> None:
            let.wait()
            giving(b'{"nodes": []}')(to)

        there = ironic({"nodes": silent, "ports": giving(b'{"ports": []}')})
        with service(there) as url:
            place = IronicPlace(endpoint=url)
            mine, theirs = (
                clouds.service(user, place, partial(Api, place)) for user in (ONE, OTHER)
            )
            assert mine is clouds.service(ONE, place, partial(Api, place))
            async with asyncio.TaskGroup() as group:
                waiting = [
                    group.create_task(mine.listed("nodes", read=bool)) for _ in range(2 * PER_USER)
                ]
                for _ in range(3):
                    assert await theirs.listed("ports", read=bool) == []
                assert not any(each.done() for each in waiting)
                let.set()
    clouds.close()


async def test_a_user_has_so_many_calls_at_a_time_over_all_clouds() -> None:
    clouds, began, ran = Clouds(), threading.Semaphore(0), list[int]()
    with held() as let:

        def wait() -> None:
            ran.append(1)
            began.release()
            let.wait()

        def calls(name: int, means: Means) -> Calls:
            assert name < PER_USER
            return Calls(means, parallel=4)

        async with asyncio.TaskGroup() as group:
            for each in range(PER_USER // 2):
                of = clouds.service(ONE, each, partial(calls, each))
                for _ in range(8):
                    group.create_task(of.run(wait))
            for _ in range(PER_USER):
                await asyncio.to_thread(began.acquire)
            theirs = clouds.service(OTHER, 0, partial(calls, 0))
            assert await theirs.run(lambda: len(ran)) == PER_USER
            let.set()
    assert len(ran) == PER_USER // 2 * 8
    clouds.close()


async def test_a_user_has_few_large_answers_at_a_time_over_all_clouds() -> None:
    """Each is decoded to many times its size: one `up` took a gigabyte of the daemon's memory."""
    clouds, began, ran = Clouds(), threading.Semaphore(0), list[int]()
    with held() as let:

        def large() -> None:
            wait_for_place()
            wait_for_place()  # a call takes one place
            ran.append(1)
            began.release()
            let.wait()

        def calls(name: int, means: Means) -> Calls:
            assert name < PER_USER
            return Calls(means, parallel=2)

        async with asyncio.TaskGroup() as group:
            for each in range(LARGE_PER_USER):
                of = clouds.service(ONE, each, partial(calls, each))
                for _ in range(2):
                    group.create_task(of.run(large))
            for _ in range(LARGE_PER_USER):
                await asyncio.to_thread(began.acquire)
            same = clouds.service(ONE, LARGE_PER_USER, partial(calls, 0))
            assert await same.run(lambda: len(ran)) == LARGE_PER_USER
            theirs = clouds.service(OTHER, 0, partial(calls, 0))
            await theirs.run(wait_for_place)
            assert not clouds.large_places(ONE).acquire(blocking=False), "clouds have the same"
            assert len(ran) == LARGE_PER_USER
            let.set()
    assert len(ran) == 2 * LARGE_PER_USER
    clouds.close()


async def test_only_large_answers_wait_for_places() -> None:
    sizes = {"/small": LARGE, "/large": LARGE + 1}
    with ThreadPoolExecutor(1) as threads:

        def answer(to: BaseHTTPRequestHandler) -> None:
            giving(b"x" * sizes[to.path])(to)

        def size(url: str) -> int:
            with requests.Session() as session:
                session.trust_env = False
                session.mount("http://", BoundedAdapter())
                return len(session.get(url, timeout=60).content)

        with service(answer) as url:
            means = Means(threads, large=(places := large_places(1)))
            calls = Calls(means, parallel=1)
            for _ in range(2):
                assert await calls.run(partial(size, f"{url}/large")) == LARGE + 1
            places.acquire()
            with pytest.raises(requests.RequestException, match="large answers"):
                await Calls(means, parallel=1, seconds=0.5).run(partial(size, f"{url}/large"))
            assert await calls.run(partial(size, f"{url}/small")) == LARGE


def test_of_a_users_services_the_one_longest_unused_is_forgotten_and_no_one_elses() -> None:
    clouds = Clouds()

    def made(_: Means) -> object:
        return object()

    theirs = clouds.service(OTHER, 0, made)
    first, second = clouds.service(ONE, 0, made), clouds.service(ONE, 1, made)
    for name in range(2, REMEMBERED):
        clouds.service(ONE, name, made)
    assert clouds.service(ONE, 0, made) is first
    clouds.service(ONE, "one more", made)
    assert clouds.service(ONE, 0, made) is first
    assert clouds.service(ONE, 1, made) is not second
    assert clouds.service(OTHER, 0, made) is theirs


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_call_ends_though_a_byte_comes_now_and_then(begins: bytes) -> None:
    with held() as let:

        def trickling(to: BaseHTTPRequestHandler) -> None:
            to.wfile.write(begins)
            while not let.wait(0.01):
                to.wfile.write(b"x")

        with service(trickling) as url, requests.Session() as session:
            session.trust_env = False
            session.mount("http://", BoundedAdapter())
            with within(0.3), pytest.raises(requests.RequestException):
                session.get(url, timeout=60)
            let.set()


async def test_a_call_to_a_cloud_has_one_end_for_all_of_its_requests() -> None:
    with ThreadPoolExecutor(1) as threads, held() as let:

        def silent(_: BaseHTTPRequestHandler) -> None:
            let.wait()

        def twice(url: str) -> None:
            with requests.Session() as session:
                session.trust_env = False
                session.mount("http://", BoundedAdapter())
                with pytest.raises(requests.RequestException):
                    session.get(url, timeout=60)
                session.get(url, timeout=60)

        with service(silent) as url:
            calls = Calls(Means(threads), parallel=1, seconds=0.2)
            with pytest.raises(requests.RequestException):
                await calls.run(partial(twice, url))
            let.set()


def test_a_kept_connection_has_the_time_of_the_next_call() -> None:
    with service(giving(b"{}")) as url, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", BoundedAdapter())
        for _ in range(3):
            with within(20):
                assert session.get(url, timeout=30).json() == {}
