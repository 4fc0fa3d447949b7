"""Databases with their tables: made once, and kept in the cache for the next cloud.

What is kept is the server's own directory after an orderly end: a copy takes a second, the
migrations of five services take more than a minute.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nospoon.dev.cloud.configuration import (
    BROKER,
    DATABASE_SOCKET,
    DATABASES,
    HOST,
    database,
    inside,
)
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import INSIDE
from nospoon.runtime import process

DIRECTORY = "mariadb"
_SQL = """
import pymysql, sys
with pymysql.connect(unix_socket=sys.argv[1], user="root", autocommit=True) as connection:
    for statement in sys.argv[2:]:
        connection.cursor().execute(statement)
"""
_BOOTSTRAP = """
set -e
mkdir "$1"
cd /usr/share/mysql
{
  echo 'CREATE DATABASE mysql;'
  echo 'USE mysql;'
  cat mysql_system_tables.sql mysql_performance_tables.sql mysql_system_tables_data.sql
} | /usr/sbin/mariadbd --no-defaults --bootstrap --user=root --datadir="$1" --skip-log-bin \
  --innodb-log-file-size=16M
"""
_CELL = "nova-manage", "nova/nova.conf"
_MAP_HOST = """
INSERT INTO nova_api.host_mappings (created_at, host, cell_id)
SELECT NOW(), '{host}', id FROM nova_api.cell_mappings WHERE name = 'cell1'
"""
"""What `cell_v2 discover_hosts` finds once the compute host has started; it takes seconds."""
_FIRST: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("keystone-manage", "keystone/keystone.conf", ("db_sync",)),
    ("placement-manage", "placement/placement.conf", ("db", "sync")),
    ("glance-manage", "glance/glance-api.conf", ("db", "sync")),
    ("neutron-db-manage", "neutron/neutron.conf", ("upgrade", "heads")),
    (*_CELL, ("api_db", "sync")),
)
"""These do not depend on one another."""
_THEN: Sequence[tuple[str, str, tuple[str, ...]]] = (
    (*_CELL, ("cell_v2", "map_cell0", "--database_connection", database("nova_cell0"))),
    (*_CELL, ("db", "sync")),
    (*_CELL, (
        "cell_v2", "create_cell", "--name", "cell1", "--transport-url", BROKER,
        "--database_connection", database("nova"),
    )),
)  # fmt: skip


async def kept(cache: Path, lock: Path) -> Path:
    """Where the databases of this lock file's services are kept, whether they are yet or not."""
    version = (await process.run(["mariadbd", "--version"])).stdout
    inputs = (lock.read_text(), version, Path(__file__).read_text(), BROKER, database(""))
    key = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    return cache / f"cloud-databases-{key}"


def copy(source: Path, target: Path) -> None:
    """A directory of a server that does not run; as a whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as work:
        shutil.copytree(source, Path(work) / "copy")
        if not target.exists():
            (Path(work) / "copy").rename(target)


def remove(cache: Path) -> None:
    """All that were kept."""
    for found in cache.glob("cloud-databases-*"):
        shutil.rmtree(found)


async def initialise(where: Namespaces, env: Mapping[str, str]) -> None:
    """A directory for the server to start with, as mariadb-install-db makes it, which needs
    programs of other packages.
    """
    await where.run(["sh", "-c", _BOOTSTRAP, "sh", str(INSIDE / DIRECTORY)], env)


async def fill(where: Namespaces, env: Mapping[str, str]) -> None:
    """Tables of all services, in a server that runs."""
    await sql(where, env, *(f"CREATE DATABASE {name}" for name in DATABASES))
    async with asyncio.TaskGroup() as group:
        for each in _FIRST:
            group.create_task(_manage(where, env, *each))
    for each in _THEN:
        await _manage(where, env, *each)
    await sql(where, env, _MAP_HOST.format(host=HOST))


async def sql(where: Namespaces, env: Mapping[str, str], *statements: str) -> None:
    """Run statements, one after the other."""
    await where.run(["python", "-P", "-c", _SQL, str(DATABASE_SOCKET), *statements], env)


async def _manage(
    where: Namespaces, env: Mapping[str, str], tool: str, config: str, arguments: Sequence[str]
) -> None:
    await where.run([tool, f"--config-file={inside(config)}", *arguments], env)
