"""Connections of openstacksdk that know only what they are told."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nospoon.errors import HostUnreachable, MissingTool, ProviderError
from nospoon.model.cloud import refused
from nospoon.providers.answers import PATIENCE, refusal
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    import requests
    from keystoneauth1.discover import Discover
    from openstack.connection import Connection

FEW = 4
"""Services of one cloud whose versions are remembered."""


def connection(told: Mapping[str, Any], *, purpose: str, reach: Reach = ANYWHERE) -> Connection:
    """The daemon's own environment, clouds.yaml, netrc and files are not used.
    Raises `ProviderError` for settings that are not on the list, which a store
    of an earlier version may have, and `MissingTool`.
    """
    try:
        import openstack  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise _missing(purpose) from error
    wrong = ", ".join(refused(told))
    if wrong:
        raise ProviderError(f"settings of a cloud that are not supported: {wrong}")
    made = openstack.connect(
        **{"api_timeout": PATIENCE, **told, "load_yaml_config": False, "load_envvars": False}
    )
    if made.session.verify is True:  # requests' own way to trust an authority of the site's
        made.session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
    _bound(made.session.session, reach)
    for keeper in (made.session, made.session.auth):
        if keeper is not None:  # keystoneauth's, one for each URL it saw
            keeper._discovery_cache = _Few()  # noqa: SLF001
    return made


def login_errors(purpose: str) -> ModuleType:
    """The module of keystoneauth's exceptions, which comes with the extra. Raises `MissingTool`."""
    try:
        from keystoneauth1 import exceptions  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise _missing(purpose) from error
    return exceptions


@contextmanager
def failures_of(service: str, purpose: str) -> Iterator[None]:
    """What keystoneauth raises within is raised as `HostUnreachable` and `ProviderError` of this
    service, such as "Nova of cloud mine".
    """
    exceptions = login_errors(purpose)
    try:
        yield
    except (exceptions.ConnectionError, exceptions.DiscoveryFailure) as error:
        raise HostUnreachable(f"{service} does not answer: {reason(error)}") from error
    except exceptions.ClientException as error:
        raise ProviderError(f"{service}: {refusal(error)}") from error
    except RecursionError as error:  # of keystoneauth's own look at a service
        raise HostUnreachable(f"{service} answers with no JSON") from error


def _missing(purpose: str) -> MissingTool:
    return MissingTool(
        f"openstacksdk is needed to {purpose}, and is not installed for the daemon",
        hint="Install it with `pip install 'nospoon[ironic]'` and restart the daemon "
        "(`nospoon daemon stop`), or leave `ironic` out of the file.",
    )


def _bound(session: requests.Session, reach: Reach) -> None:
    """Whoever wrote the file chose the server: it is sent nothing of the daemon's environment
    (proxies, netrc), its answers are bounded, and each of its addresses is judged.
    """
    from nospoon.providers.bounded_http import BoundedAdapter  # noqa: PLC0415  (an extra)

    session.trust_env = False
    session.auth = _as_it_is  # else requests would look into the user's netrc
    session.adapters.clear()  # those of other schemes too
    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedAdapter(reach, marked=True))


class _Few(dict[str, "Discover"]):
    """Keeps the last ones: a catalog that changes with each login names URLs without an end."""

    def __setitem__(self, name: str, value: Discover) -> None:
        self.pop(name, None)
        super().__setitem__(name, value)
        while len(self) > FEW:
            del self[next(iter(self))]


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
