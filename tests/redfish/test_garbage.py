"""Whatever JSON a client sends, it is taken or refused with a reason, never an exception."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.events import Subscription
from nospoon.bmc.users import User
from nospoon.services.bmcs.redfish import accounts, certificate_service, submitted, subscribing
from nospoon.services.bmcs.redfish.errors import RedfishError

_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
    st.sampled_from(["http://h/", "http://[", "ResourceEvent", "Task", "OK", "Alert",
                     "ResourceEvent.ResourceChanged", "SuspendRetries", "Operator", "TPM_ALG_RSA"]),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def bodies(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | st.text(), _VALUES, max_size=6)


_SUBSCRIPTION = bodies(
    "Destination", "Protocol", "Context", "HttpHeaders", "RegistryPrefixes", "ResourceTypes",
    "OriginResources", "MessageIds", "EventTypes", "Severities", "SubordinateResources",
    "DeliveryRetryPolicy", "VerifyCertificate", "@odata.id",
)  # fmt: skip


NEEDED = {"Destination": "https://h/x", "Protocol": "Redfish"}


@given(_SUBSCRIPTION)
def test_a_subscription_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        made = subscribing.subscription("1", {**NEEDED, **body})
        assert made.destination.startswith(("http://", "https://"))
        assert "\r" not in repr(made.headers)
    with contextlib.suppress(RedfishError):
        subscribing.changed(Subscription("1", "http://h/"), body)


@given(bodies("UserName", "Password", "RoleId", "Enabled", "Locked", "AccountTypes"))
def test_an_account_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        made = accounts._changed([], User(3), body)
        assert len(made.name.encode()) <= 16
        assert len(made.password.encode()) <= 20


@given(bodies("EventId", "EventType", "Message", "MessageId", "MessageArgs", "Severity",
              "OriginOfCondition", "EventTimestamp", "EventGroupId"))  # fmt: skip
def test_a_test_event_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        what, told = submitted.event({"MessageId": "Base.1.18.Success", **body})
        assert "\n" not in what.id
        assert set(told) <= {each.name for each in submitted.SUBMIT.parameters}


@given(bodies("CommonName", "Country", "Email", "AlternativeNames", "KeyPairAlgorithm",
              "KeyBitLength", "KeyCurveId"))  # fmt: skip
def test_a_signing_request_is_read_or_refused(body: dict[str, Any]) -> None:
    needed = {"CertificateCollection": {}, "CommonName": "x"}
    with contextlib.suppress(RedfishError):
        given = certificate_service.GENERATE.read({**needed, **body})
        certificate_service._subject(given)
        certificate_service._alternatives(given)
        certificate_service._key(given)
