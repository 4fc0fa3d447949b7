"""The user's clouds: what openstacksdk makes of clouds.yaml, secure.yaml and `OS_*`.

The client reads them, for they are the user's files; the daemon is told what they say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nospoon.cli.echo import echo
from nospoon.cli.owners import is_own
from nospoon.errors import MissingTool, UsageError
from nospoon.model.cloud import AUTH_TYPES, FILES, SETTINGS, refused


def cloud(name: str) -> dict[str, object]:
    """What someone needs to use a cloud. Raises `UsageError`, `MissingTool`."""
    try:
        from openstack import exceptions  # noqa: PLC0415  (an extra)
        from openstack.config import loader  # noqa: PLC0415
    except ImportError as error:
        raise MissingTool(
            "openstacksdk is needed to read clouds.yaml, and is not installed",
            hint="Install it with `pip install 'nospoon[ironic]'`.",
        ) from error
    try:
        config = loader.OpenStackConfig(**_files(loader)).get_one(cloud=name).config
    except exceptions.ConfigException as error:
        raise UsageError(
            f"cloud {name!r} is not in clouds.yaml, or its entry is not complete",
            hint="OS_CLIENT_CONFIG_FILE names a clouds.yaml.",
        ) from error
    # in order, for the daemon compares the text of one `up` with that of the next
    told = {key: config[key] for key in sorted(SETTINGS) if config.get(key) is not None}
    auth = sorted(told.get("auth", {}).items())
    told["auth"] = {key: value for key, value in auth if value is not None}
    files = [key for key in FILES if config.get(key)]
    if files:
        raise UsageError(
            f"cloud {name!r} has the file {files[0]}, which the daemon does not read",
            hint="Let the system trust it (update-ca-certificates), or write `verify: false`.",
        )
    wrong = list(refused(told))
    if wrong:
        raise UsageError(
            f"cloud {name!r} has settings that nospoon does not pass on: {', '.join(wrong)}",
            hint=f"auth_type may be {', '.join(AUTH_TYPES)}.",
        )
    return {"name": name, **told}


def _files(loader: Any) -> dict[str, Any]:
    """The files that openstacksdk looks for, without those of another user in the directory where
    nospoon was started: a cloud of theirs would get the caller's images.
    """
    wanted = {
        "config_files": loader.CONFIG_FILES,
        "secure_files": loader.SECURE_FILES,
        "vendor_files": loader.VENDOR_FILES,
    }
    foreign = {each for files in wanted.values() for each in files if _is_foreign(Path(each))}
    for each in sorted(foreign):
        echo(f"{each} is not read: it, or its directory, belongs to another user", err=True)
    return {name: [each for each in files if each not in foreign] for name, files in wanted.items()}


def _is_foreign(path: Path) -> bool:
    try:
        return path.parent == Path.cwd() and not (is_own(path.parent) and is_own(path))
    except OSError:  # it is not there, as a rule
        return False
