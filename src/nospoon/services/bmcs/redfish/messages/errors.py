"""Redfish errors: HTTP status and a message of the Base registry (DSP0266 §8.6, DSP8011)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nospoon.bmc.events import filled
from nospoon.errors import (
    Conflict,
    Gone,
    NospoonError,
    Obstacle,
    OutOfSpace,
    Transient,
    Unfetchable,
    UsageError,
)
from nospoon.services.bmcs.redfish.messages.base import MESSAGES, REGISTRY
from nospoon.services.bmcs.redfish.messages.metadata import odata_type

SUCCESS = {
    "@odata.type": odata_type("Message"),
    "MessageId": f"{REGISTRY}.Success",
    "Message": MESSAGES["Success"].text,
    "Severity": "OK",
    "MessageSeverity": "OK",
    "Resolution": "None.",
}
"""Of something that worked, where messages are told."""


def told(value: object) -> str:
    """A value of JSON as an argument of a message: null is `null` (DSP8011)."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class RedfishError(Exception):
    """A request that is refused, with what the client is told: a message of the Base registry with
    its arguments. `text`: what it says here instead of the registry's text.
    """

    def __init__(
        self,
        status: int,
        message_id: str,
        *args: str,
        text: str = "",
        resolution: str = "None.",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.message = text or filled(MESSAGES[message_id].text, args)
        super().__init__(self.message)
        self.status, self.message_id, self.message_args = status, message_id, args
        self.resolution, self.headers = resolution, headers or {}

    def extended(self) -> dict[str, object]:
        """The extended information."""
        severity = str(MESSAGES[self.message_id].severity)
        return {
            "@odata.type": odata_type("Message"),
            "MessageId": f"{REGISTRY}.{self.message_id}",
            "Message": self.message,
            "MessageArgs": list(self.message_args),
            "Severity": severity,
            "MessageSeverity": severity,
            "Resolution": self.resolution,
        }

    def body(self) -> dict[str, object]:
        """The `error` object with its extended information."""
        extended = self.extended()
        return {
            "error": {
                "code": extended["MessageId"],
                "message": self.message,
                "@Message.ExtendedInfo": [extended],
            }
        }


def not_found(path: str) -> RedfishError:
    return RedfishError(
        404,
        "ResourceMissingAtURI",
        path,
        resolution="Place a valid resource at the URI or correct the URI and resubmit the request.",
    )


def elsewhere(path: str, location: str) -> RedfishError:
    """A resource has another URI (RFC 9110 §15.4.8: the method stays)."""
    return RedfishError(
        307,
        "ResourceMissingAtURI",
        path,
        resolution=f"Use {location}.",
        headers={"Location": location},
    )


def precondition_failed() -> RedfishError:
    return RedfishError(
        412,
        "PreconditionFailed",
        resolution="Read the resource again and resubmit the request with its ETag.",
    )


def precondition_required() -> RedfishError:
    """Of an action that is told an ETag which is no more (DSP0268, LogService.ClearLog)."""
    return RedfishError(
        428,
        "PreconditionRequired",
        resolution="Read the entries again and resubmit the request with their ETag.",
    )


def not_allowed(allowed: str) -> RedfishError:
    """`allowed`: methods, as in the Allow header."""
    return RedfishError(
        405,
        "OperationNotAllowed",
        resolution=f"Use one of {allowed}.",
        headers={"Allow": allowed},
    )


def unauthorized(path: str) -> RedfishError:
    why = "credentials are missing or wrong"
    return RedfishError(
        401,
        "ResourceAtUriUnauthorized",
        path,
        why,
        resolution="Ensure that the appropriate access is provided for the service.",
        headers={"WWW-Authenticate": 'Basic realm="Redfish"'},
    )


def forbidden() -> RedfishError:
    return RedfishError(
        403,
        "InsufficientPrivilege",
        resolution="Use an account with the role Operator or Administrator.",
    )


def malformed(why: str) -> RedfishError:
    return RedfishError(
        400,
        "MalformedJSON",
        text=f"The request body could not be read as a JSON object: {why}.",
        resolution="Ensure that the request body is valid JSON and resubmit the request.",
    )


def header_invalid(status: int, header: str, resolution: str) -> RedfishError:
    """`header`: its name and its value."""
    return RedfishError(
        status,
        "HeaderInvalid",
        header,
        resolution=f"{resolution}.",
    )


def too_large() -> RedfishError:
    """Of a request's body."""
    return RedfishError(
        413,
        "PayloadTooLarge",
        resolution="Check that the supplied payload is correct and supported by this service.",
    )


def unknown_property(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyUnknown",
        name,
        resolution="Remove the unknown property from the request body and resubmit the request.",
    )


def read_only(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyNotWritable",
        name,
        resolution="Remove the property from the request body and resubmit the request.",
    )


def wrong_type(name: str, value: object) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueTypeError",
        told(value),
        name,
        resolution="Correct the value for the property in the request body.",
    )


def wrong_format(name: str, value: object, expected: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueFormatError",
        told(value),
        name,
        resolution=f"Give {expected}.",
    )


def not_in_list(name: str, value: object, allowed: tuple[str, ...]) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueNotInList",
        told(value),
        name,
        resolution=f"Choose one of {', '.join(allowed)}.",
    )


def out_of_range(name: str, value: object) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueOutOfRange",
        told(value),
        name,
        resolution="Choose a value within the supported range.",
    )


def cannot_be_deleted() -> RedfishError:
    return RedfishError(
        403,
        "ResourceCannotBeDeleted",
        resolution="Do not attempt to delete a resource that the cluster file describes.",
    )


def too_long(name: str, value: object, longest: int) -> RedfishError:
    return RedfishError(
        400,
        "StringValueTooLong",
        told(value),
        str(longest),
        resolution=f"Resubmit the request with a shorter {name}.",
    )


def no_action(action: str) -> RedfishError:
    return RedfishError(
        501,
        "ActionNotSupported",
        action,
        resolution="Choose one of the actions that the resource lists.",
    )


def conflict(name: str, other: str, resolution: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueConflict",
        name,
        other,
        resolution=resolution,
    )


def missing_property(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyMissing",
        name,
        resolution="Ensure that the property is in the request body and has a valid value.",
    )


STATUSES: tuple[tuple[type[NospoonError], int], ...] = (
    (UsageError, 400),
    (Gone, 409),
    (Conflict, 409),
    (Transient, 503),
)
"""Our errors as HTTP statuses; all others are 500."""


def of(error: NospoonError) -> RedfishError:
    """What a client is told of an error of ours."""
    if isinstance(error, Unfetchable):
        return unfetchable(error)
    if isinstance(error, OutOfSpace):
        return out_of_space(error)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return general(status, str(error))


_UNFETCHABLE: Mapping[Obstacle, str] = {
    Obstacle.UNREACHABLE: "CouldNotEstablishConnection",
    Obstacle.UNAUTHORIZED: "ResourceAtUriUnauthorized",
    Obstacle.MISSING: "ResourceMissingAtURI",
    Obstacle.BROKEN: "InvalidObject",
}


def unfetchable(error: Unfetchable) -> RedfishError:
    """The image that a client named is not available: its request was wrong, not this service."""
    id_ = _UNFETCHABLE[error.why]
    args = (error.url, error.message)[: MESSAGES[id_].count]
    return RedfishError(400, id_, *args, resolution=f"{error.message}.")


def not_implemented(method: str) -> RedfishError:
    """Of an HTTP method that no resource has (DSP0266 §6.2)."""
    return general(501, f"The method {method} is not implemented.")


def out_of_space(error: OutOfSpace) -> RedfishError:
    return RedfishError(
        507,
        "InsufficientStorage",
        resolution=f"{error}",
    )


def restarting() -> RedfishError:
    """Of a BMC that was told to restart."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "1",
        resolution="Wait for the indicated retry duration and retry the operation.",
        headers={"Retry-After": "1"},
    )


def too_many_logins() -> RedfishError:
    """Of a source whose logins fail, and that goes on: others wait before this one."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "10",
        resolution="Logins from this address failed. Correct the password, and retry later.",
        headers={"Retry-After": "10"},
    )


def too_many_requests() -> RedfishError:
    """Of one account at the same time."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "1",
        resolution="Too many requests of this account are in progress: send fewer at once.",
        headers={"Retry-After": "1"},
    )


def internal() -> RedfishError:
    """Of an error that no one expected; the log has it."""
    return RedfishError(
        500,
        "InternalError",
        resolution="Resubmit the request.",
    )


def in_standby(reason: str) -> RedfishError:
    """409: the machine is off, or has no AC power."""
    return RedfishError(
        409,
        "ResourceInStandby",
        resolution="Ensure that the resource is in the correct power state and resubmit the "
        f"request: {reason}.",
    )


def general(status: int, message: str, *, headers: dict[str, str] | None = None) -> RedfishError:
    return RedfishError(status, "GeneralError", text=message, headers=headers)
