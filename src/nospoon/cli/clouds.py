"""The user's clouds: what openstacksdk makes of clouds.yaml, secure.yaml and `OS_*`.

The client reads them, for they are the user's files; the daemon is told what they say.
"""

from __future__ import annotations

from typing import Any

from nospoon.errors import MissingTool, UsageError

TOLD = (
    "auth_type", "auth", "region_name", "interface", "verify", "baremetal_endpoint_override",
    "api_timeout",
)  # fmt: skip


def cloud(name: str) -> dict[str, Any]:
    """What somebody needs to use a cloud. Raises `UsageError`, `MissingTool`."""
    try:
        from openstack import exceptions  # noqa: PLC0415  (an extra)
        from openstack.config.loader import OpenStackConfig  # noqa: PLC0415
    except ImportError as error:
        raise MissingTool(
            "openstacksdk is needed to read clouds.yaml", hint="pip install 'nospoon[ironic]'"
        ) from error
    try:
        config = OpenStackConfig().get_one(cloud=name).config
    except exceptions.ConfigException as error:
        raise UsageError(
            f"cloud {name!r}: {error}", hint="OS_CLIENT_CONFIG_FILE names a clouds.yaml."
        ) from error
    if config.get("cacert"):
        raise UsageError(
            f"cloud {name!r} has a cacert, which the daemon cannot read",
            hint="Let the system trust it (update-ca-certificates), or write `verify: false`.",
        )
    told = {key: config[key] for key in TOLD if config.get(key) is not None}
    return {"name": name, **told}
