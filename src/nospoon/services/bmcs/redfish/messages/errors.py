"""Redfish errors: HTTP status and a message of the Base registry (DSP0266 §8.6, DSP8011)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nospoon.bmc.events import filled
from nospoon.errors import (
    Conflict,
    Gone,
    HostUnreachable,
    NospoonError,
    Obstacle,
    OutOfSpace,
    Unfetchable,
    UsageError,
)

REGISTRY = "Base.1.18"
SUCCESS = {
    "@odata.type": "#Message.v1_2_1.Message",
    "MessageId": f"{REGISTRY}.Success",
    "Message": "The request completed successfully.",
    "Severity": "OK",
    "MessageSeverity": "OK",
    "Resolution": "None.",
}
"""Of something that worked, where messages are told."""


_WARNINGS = frozenset({
    "ActionParameterNotSupported", "ActionParameterUnknown", "ActionParameterValueFormatError",
    "ActionParameterValueNotInList", "ActionParameterValueTypeError", "PropertyMissing",
    "PropertyNotWritable", "PropertyUnknown", "PropertyValueConflict", "PropertyValueFormatError",
    "PropertyValueNotInList", "PropertyValueOutOfRange", "PropertyValueTypeError",
    "QueryCombinationInvalid", "QueryNotSupportedOnOperation", "QueryNotSupportedOnResource",
    "QueryParameterOutOfRange",
    "QueryParameterUnsupported", "QueryParameterValueFormatError", "ServiceDisabled",
    "StringValueTooLong",
})  # fmt: skip
"""Messages of which the registry says so; the others are critical."""


def told(value: object) -> str:
    """A value of JSON as an argument of a message: null is `null` (DSP8011)."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class RedfishError(Exception):
    """A request that is refused, with what the client is told."""

    def __init__(
        self,
        status: int,
        message_id: str,
        message: str,
        *,
        args: tuple[str, ...] = (),
        resolution: str = "None.",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message_id, self.message = status, message_id, message
        self.message_args, self.resolution = args, resolution
        self.headers = headers or {}

    def extended(self) -> dict[str, object]:
        """The extended information: a message of the registry."""
        severity = "Warning" if self.message_id in _WARNINGS else "Critical"
        return {
            "@odata.type": "#Message.v1_2_1.Message",
            "MessageId": f"{REGISTRY}.{self.message_id}",
            "Message": self.message,
            "MessageArgs": list(self.message_args),
            "Severity": severity,
            "MessageSeverity": severity,
            "Resolution": self.resolution,
        }

    def body(self) -> dict[str, Any]:
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
        f"The resource at the URI '{path}' was not found.",
        args=(path,),
        resolution="Place a valid resource at the URI or correct the URI and resubmit the request.",
    )


def elsewhere(path: str, location: str) -> RedfishError:
    """A resource has another URI (RFC 9110 §15.4.8: the method stays)."""
    return RedfishError(
        307,
        "ResourceMissingAtURI",
        f"The resource at the URI '{path}' was not found.",
        args=(path,),
        resolution=f"Use {location}.",
        headers={"Location": location},
    )


def precondition_failed() -> RedfishError:
    return RedfishError(
        412,
        "PreconditionFailed",
        "The ETag supplied did not match the ETag required to change this resource.",
        resolution="Read the resource again and resubmit the request with its ETag.",
    )


def precondition_required() -> RedfishError:
    """Of an action that is told an ETag which is no more (DSP0268, LogService.ClearLog)."""
    return RedfishError(
        428,
        "PreconditionRequired",
        "A precondition header or annotation is required to change this resource.",
        resolution="Read the entries again and resubmit the request with their ETag.",
    )


def not_allowed(allowed: str) -> RedfishError:
    """`allowed`: methods, as in the Allow header."""
    return RedfishError(
        405,
        "OperationNotAllowed",
        "The HTTP method is not allowed on this resource.",
        resolution=f"Use one of {allowed}.",
        headers={"Allow": allowed},
    )


def unauthorized(path: str) -> RedfishError:
    why = "credentials are missing or wrong"
    return RedfishError(
        401,
        "ResourceAtUriUnauthorized",
        f"While accessing the resource at '{path}', the service received an authorization error "
        f"'{why}'.",
        args=(path, why),
        resolution="Ensure that the appropriate access is provided for the service.",
        headers={"WWW-Authenticate": 'Basic realm="Redfish"'},
    )


def forbidden() -> RedfishError:
    return RedfishError(
        403,
        "InsufficientPrivilege",
        "There are insufficient privileges for the account or credentials associated with the "
        "current session to perform the requested operation.",
        resolution="Use an account with the role Operator or Administrator.",
    )


def malformed(why: str) -> RedfishError:
    return RedfishError(
        400,
        "MalformedJSON",
        f"The request body could not be read as a JSON object: {why}.",
        resolution="Ensure that the request body is valid JSON and resubmit the request.",
    )


def header_invalid(status: int, header: str, resolution: str) -> RedfishError:
    """`header`: its name and its value."""
    return RedfishError(
        status,
        "HeaderInvalid",
        f"Header '{header}' is invalid.",
        args=(header,),
        resolution=f"{resolution}.",
    )


def too_large() -> RedfishError:
    """Of a request's body."""
    return RedfishError(
        413,
        "PayloadTooLarge",
        "The supplied payload exceeds the maximum size supported by the service.",
        resolution="Check that the supplied payload is correct and supported by this service.",
    )


def unknown_property(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyUnknown",
        f"The property {name} is not in the list of valid properties for the resource.",
        args=(name,),
        resolution="Remove the unknown property from the request body and resubmit the request.",
    )


def read_only(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyNotWritable",
        f"The property {name} is a read-only property and cannot be assigned a value.",
        args=(name,),
        resolution="Remove the property from the request body and resubmit the request.",
    )


def wrong_type(name: str, value: object) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueTypeError",
        f"The value '{told(value)}' for the property {name} is not a type that the property can "
        "accept.",
        args=(told(value), name),
        resolution="Correct the value for the property in the request body.",
    )


def wrong_format(name: str, value: object, expected: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueFormatError",
        f"The value '{told(value)}' for the property {name} is not a format that the property can "
        "accept.",
        args=(told(value), name),
        resolution=f"Give {expected}.",
    )


def not_in_list(name: str, value: object, allowed: tuple[str, ...]) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueNotInList",
        f"The value '{told(value)}' for the property {name} is not in the list of acceptable "
        "values.",
        args=(told(value), name),
        resolution=f"Choose one of {', '.join(allowed)}.",
    )


def out_of_range(name: str, value: object) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueOutOfRange",
        f"The value '{told(value)}' for the property {name} is not in the supported range of "
        "acceptable values.",
        args=(told(value), name),
        resolution="Choose a value within the supported range.",
    )


def cannot_be_deleted() -> RedfishError:
    return RedfishError(
        403,
        "ResourceCannotBeDeleted",
        "The delete request failed because the resource requested cannot be deleted.",
        resolution="Do not attempt to delete a resource that the cluster file describes.",
    )


def too_long(name: str, value: object, longest: int) -> RedfishError:
    return RedfishError(
        400,
        "StringValueTooLong",
        f"The string '{told(value)}' exceeds the length limit {longest}.",
        args=(told(value), str(longest)),
        resolution=f"Resubmit the request with a shorter {name}.",
    )


def no_action(action: str) -> RedfishError:
    return RedfishError(
        501,
        "ActionNotSupported",
        f"The action {action} is not supported by the resource.",
        args=(action,),
        resolution="Choose one of the actions that the resource lists.",
    )


def conflict(name: str, other: str, resolution: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyValueConflict",
        f"The property '{name}' could not be written because its value would conflict with the "
        f"value of the '{other}' property.",
        args=(name, other),
        resolution=resolution,
    )


def missing_property(name: str) -> RedfishError:
    return RedfishError(
        400,
        "PropertyMissing",
        f"The property {name} is a required property and must be included in the request.",
        args=(name,),
        resolution="Ensure that the property is in the request body and has a valid value.",
    )


STATUSES: tuple[tuple[type[NospoonError], int], ...] = (
    (UsageError, 400),
    (Gone, 409),
    (Conflict, 409),
    (HostUnreachable, 503),
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


_UNFETCHABLE: Mapping[Obstacle, tuple[str, str]] = {
    Obstacle.UNREACHABLE: (
        "CouldNotEstablishConnection",
        "The service failed to establish a connection with the URI '%1'.",
    ),
    Obstacle.UNAUTHORIZED: (
        "ResourceAtUriUnauthorized",
        "While accessing the resource at '%1', the service received an authorization error '%2'.",
    ),
    Obstacle.MISSING: ("ResourceMissingAtURI", "The resource at the URI '%1' was not found."),
    Obstacle.BROKEN: ("InvalidObject", "The object at '%1' is invalid."),
}


def unfetchable(error: Unfetchable) -> RedfishError:
    """The image that a client named is not available: its request was wrong, not this service."""
    id_, text = _UNFETCHABLE[error.why]
    args = (error.url, error.message)[: text.count("%")]
    message = filled(text, args)
    return RedfishError(400, id_, message, args=args, resolution=f"{error.message}.")


def not_implemented(method: str) -> RedfishError:
    """Of an HTTP method that no resource has (DSP0266 §6.2)."""
    return general(501, f"The method {method} is not implemented.")


def out_of_space(error: OutOfSpace) -> RedfishError:
    return RedfishError(
        507,
        "InsufficientStorage",
        "Insufficient storage or memory available to complete the request.",
        resolution=f"{error}",
    )


def restarting() -> RedfishError:
    """Of a BMC that was told to restart."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable.  Retry in 1 seconds.",
        args=("1",),
        resolution="Wait for the indicated retry duration and retry the operation.",
        headers={"Retry-After": "1"},
    )


def too_many_logins() -> RedfishError:
    """Of a source whose logins fail, and that goes on: others wait before this one."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable.  Retry in 10 seconds.",
        args=("10",),
        resolution="Logins from this address failed. Correct the password, and retry later.",
        headers={"Retry-After": "10"},
    )


def too_many_requests() -> RedfishError:
    """Of one account at the same time."""
    return RedfishError(
        503,
        "ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable.  Retry in 1 seconds.",
        args=("1",),
        resolution="Too many requests of this account are in progress: send fewer at once.",
        headers={"Retry-After": "1"},
    )


def internal() -> RedfishError:
    """Of an error that nobody expected; the log has it."""
    return RedfishError(
        500,
        "InternalError",
        "The request failed due to an internal service error.  The service is still operational.",
        resolution="Resubmit the request.",
    )


def in_standby(reason: str) -> RedfishError:
    """409: the machine is off, or has no AC power."""
    return RedfishError(
        409,
        "ResourceInStandby",
        "The request could not be performed because the resource is in standby.",
        resolution="Ensure that the resource is in the correct power state and resubmit the "
        f"request: {reason}.",
    )


def general(status: int, message: str, *, headers: dict[str, str] | None = None) -> RedfishError:
    return RedfishError(status, "GeneralError", message, headers=headers)
