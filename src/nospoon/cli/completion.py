"""What a shell completes: files, and names that a running daemon knows. None is started for it.

https://click.palletsprojects.com/en/stable/shell-completion/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from nospoon.cli import connect
from nospoon.errors import NospoonError

T = TypeVar("T")
MOST = 1000
"""Names that a shell is given."""


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of files, which the shell itself looks up."""
    del ctx, parameter
    return [CompletionItem(incomplete, type="file")]


def clusters(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The user's clusters; where no name begins so, files."""
    from nospoon.model.rest.clusters import ClusterSummary  # noqa: PLC0415  (only where one completes)

    named = _beginning(incomplete, (row.name for row in _rows(ClusterSummary, "/v1/clusters")))
    return named or files(ctx, parameter, incomplete)


def nodes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The user's nodes, as CLUSTER/NODE."""
    from nospoon.model.rest.nodes import NodeSummary  # noqa: PLC0415  (only where one completes)

    del ctx, parameter
    cluster, whole, _ = incomplete.partition("/")
    query = {"cluster": cluster} if whole else {}
    rows = _rows(NodeSummary, "/v1/nodes", **query)
    return _beginning(incomplete, (f"{row.cluster}/{row.node}" for row in rows))


def _rows(kind: type[T], path: str, **query: str) -> list[T]:
    """Nothing where no daemon runs, or it refuses: a shell has no place for messages."""
    try:
        client = connect.running_client()
        kinds: type[list[T]] = list[kind]  # type: ignore[valid-type]
        return client.ask(kinds, "GET", path, **query) if client is not None else []
    except NospoonError:
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:MOST]
