"""Run by the environment's Python, in the cloud: wait for the database or for a queue's consumer.

waiting.py database SOCKET
waiting.py queue NAME...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def database(path: str) -> bool:
    import pymysql  # type: ignore[import-untyped]  # noqa: PLC0415  (of the environment)

    try:
        pymysql.connect(unix_socket=path, user="root").close()
    except pymysql.err.OperationalError:
        return False
    return True


def queue(name: str) -> bool:
    """A message to a queue without a consumer is answered by no one for a minute."""
    import amqp  # type: ignore[import-not-found]  # noqa: PLC0415  (of the environment)

    try:
        with amqp.Connection("127.0.0.1:5672") as connection:
            told = connection.channel().queue_declare(name, passive=True)
    except (OSError, amqp.exceptions.AMQPError):
        return False
    return bool(told.consumer_count)


def main(kind: str, *names: str) -> None:
    check: Callable[[str], bool] = {"database": database, "queue": queue}[kind]
    for name in names:
        while not check(name):
            time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
