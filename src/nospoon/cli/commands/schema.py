"""nospoon schema."""

from __future__ import annotations

import json

import click

from nospoon.cli.echo import echo


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of cluster files, for editors."""
    from nospoon.clusterfile.schema import json_schema  # noqa: PLC0415  (imports pydantic)

    echo(json.dumps(json_schema(), indent=2))
