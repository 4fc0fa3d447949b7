"""What the daemon may be told of an OpenStack cloud: an allow-list of openstacksdk's settings.

Anything else could make openstacksdk read the daemon's own environment, clouds.yaml or files
(`cloud`, `profile`, `load_envvars`, `cacert`, plugins of keystoneauth1 that take paths), which are
not the caller's (https://docs.openstack.org/openstacksdk/latest/user/config/configuration.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

AUTH_TYPES = (
    "none", "noauth", "http_basic", "password", "v3password", "token", "v3token",
    "v3applicationcredential",
)  # fmt: skip
"""Plugins of keystoneauth1 that take no file."""
AUTH = frozenset({
    "auth_url", "endpoint", "username", "user_id", "password", "token", "user_domain_id",
    "user_domain_name", "project_id", "project_name", "project_domain_id", "project_domain_name",
    "domain_id", "domain_name", "default_domain_id", "default_domain_name", "system_scope",
    "trust_id", "application_credential_id", "application_credential_name",
    "application_credential_secret",
})  # fmt: skip
"""Keys of `auth`, all of them text."""
URLS = frozenset({
    "baremetal_endpoint_override", "compute_endpoint_override", "placement_endpoint_override",
})  # fmt: skip
SETTINGS = URLS | {
    "auth_type", "auth", "region_name", "interface", "verify", "api_timeout",
    "identity_api_version",
}  # fmt: skip
FILES = ("cacert", "cert", "key")
"""Settings that name files."""


def refused(told: Mapping[str, object]) -> Iterator[str]:
    """Each setting that the daemon does not pass on, as `auth.x` or `x`."""
    auth = told.get("auth", {})
    yield from sorted(told.keys() - SETTINGS)
    if not isinstance(told.get("verify", True), bool):
        yield "verify"  # a path of certificates
    if told.get("auth_type", "password") not in AUTH_TYPES:
        yield "auth_type"
    if not isinstance(auth, Mapping):
        yield "auth"
    else:
        yield from sorted(f"auth.{key}" for key in auth.keys() - AUTH)
