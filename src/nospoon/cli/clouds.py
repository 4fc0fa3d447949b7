"""The user's clouds: what openstacksdk makes of clouds.yaml, secure.yaml and `OS_*`.

The client reads them, for they are the user's files; the daemon is told what they say.
"""

from __future__ import annotations

from nospoon.errors import MissingTool, UsageError
from nospoon.model.cloud import AUTH_TYPES, FILES, SETTINGS, refused


def cloud(name: str) -> dict[str, object]:
    """What somebody needs to use a cloud. Raises `UsageError`, `MissingTool`."""
    try:
        from openstack import exceptions  # noqa: PLC0415  (an extra)
        from openstack.config.loader import OpenStackConfig  # noqa: PLC0415
    except ImportError as error:
        raise MissingTool(
            "openstacksdk is needed to read clouds.yaml, and is not installed",
            hint="Install it with `pip install 'nospoon[ironic]'`.",
        ) from error
    try:
        config = OpenStackConfig().get_one(cloud=name).config
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
