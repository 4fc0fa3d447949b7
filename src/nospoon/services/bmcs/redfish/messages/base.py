"""The messages of DMTF's Base registry that are used here (DSP8011 1.18.1), each with its text.

One table for errors, for what is successful, and for the registry that clients read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nospoon.bmc.events import LOST, count_of
from nospoon.bmc.log import Severity

REGISTRY = "Base.1.18"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message: `%1` and so on in its text stand for its arguments."""

    text: str
    severity: Severity

    @property
    def count(self) -> int:
        """Of its arguments."""
        return count_of(self.text)


def _ok(text: str) -> Entry:
    return Entry(text, Severity.OK)


def _warning(text: str) -> Entry:
    return Entry(text, Severity.WARNING)


def _critical(text: str) -> Entry:
    return Entry(text, Severity.CRITICAL)


MESSAGES: Mapping[str, Entry] = {
    "ActionNotSupported": _critical("The action %1 is not supported by the resource."),
    "ActionParameterMissing": _critical(
        "The action %1 requires the parameter %2 to be present in the request body."
    ),
    "ActionParameterNotSupported": _warning(
        "The parameter %1 for the action %2 is not supported on the target resource."
    ),
    "ActionParameterUnknown": _warning(
        "The action %1 was submitted with the invalid parameter %2."
    ),
    "ActionParameterValueFormatError": _warning(
        "The value '%1' for the parameter %2 in the action %3 is not a format that the parameter "
        "can accept."
    ),
    "ActionParameterValueNotInList": _warning(
        "The value '%1' for the parameter %2 in the action %3 is not in the list of acceptable "
        "values."
    ),
    "ActionParameterValueTypeError": _warning(
        "The value '%1' for the parameter %2 in the action %3 is not a type that the parameter "
        "can accept."
    ),
    "CouldNotEstablishConnection": _critical(
        "The service failed to establish a connection with the URI '%1'."
    ),
    "CreateLimitReachedForResource": _critical(
        "The create operation failed because the resource has reached the limit of possible "
        "resources."
    ),
    "EventBufferExceeded": Entry(LOST.text, LOST.severity),
    "EventSubscriptionLimitExceeded": _critical(
        "The event subscription failed due to the number of simultaneous subscriptions exceeding "
        "the limit of the implementation."
    ),
    "GeneralError": _critical(
        "A general error has occurred.  See Resolution for information on how to resolve the "
        "error, or @Message.ExtendedInfo if Resolution is not provided."
    ),
    "HeaderInvalid": _critical("Header '%1' is invalid."),
    "InsufficientPrivilege": _critical(
        "There are insufficient privileges for the account or credentials associated with the "
        "current session to perform the requested operation."
    ),
    "InsufficientStorage": _critical(
        "Insufficient storage or memory available to complete the request."
    ),
    "InternalError": _critical(
        "The request failed due to an internal service error.  The service is still operational."
    ),
    "InvalidObject": _critical("The object at '%1' is invalid."),
    "MalformedJSON": _critical(
        "The request body submitted was malformed JSON and could not be parsed by the receiving "
        "service."
    ),
    "OperationNotAllowed": _critical("The HTTP method is not allowed on this resource."),
    "PayloadTooLarge": _critical(
        "The supplied payload exceeds the maximum size supported by the service."
    ),
    "PreconditionFailed": _critical(
        "The ETag supplied did not match the ETag required to change this resource."
    ),
    "PreconditionRequired": _critical(
        "A precondition header or annotation is required to change this resource."
    ),
    "PropertyMissing": _warning(
        "The property %1 is a required property and must be included in the request."
    ),
    "PropertyNotWritable": _warning(
        "The property %1 is a read-only property and cannot be assigned a value."
    ),
    "PropertyUnknown": _warning(
        "The property %1 is not in the list of valid properties for the resource."
    ),
    "PropertyValueConflict": _warning(
        "The property '%1' could not be written because its value would conflict with the value "
        "of the '%2' property."
    ),
    "PropertyValueFormatError": _warning(
        "The value '%1' for the property %2 is not a format that the property can accept."
    ),
    "PropertyValueNotInList": _warning(
        "The value '%1' for the property %2 is not in the list of acceptable values."
    ),
    "PropertyValueOutOfRange": _warning(
        "The value '%1' for the property %2 is not in the supported range of acceptable values."
    ),
    "PropertyValueTypeError": _warning(
        "The value '%1' for the property %2 is not a type that the property can accept."
    ),
    "QueryCombinationInvalid": _warning(
        "Two or more query parameters in the request cannot be used together."
    ),
    "QueryNotSupportedOnOperation": _warning(
        "Querying is not supported with the requested operation."
    ),
    "QueryNotSupportedOnResource": _warning("Querying is not supported on the requested resource."),
    "QueryParameterOutOfRange": _warning(
        "The value '%1' for the query parameter %2 is out of range %3."
    ),
    "QueryParameterUnsupported": _warning("Query parameter '%1' is not supported."),
    "QueryParameterValueFormatError": _warning(
        "The value '%1' for the parameter %2 is not a format that the parameter can accept."
    ),
    "ResourceAlreadyExists": _critical(
        "The requested resource of type %1 with the property %2 with the value '%3' already exists."
    ),
    "ResourceAtUriUnauthorized": _critical(
        "While accessing the resource at '%1', the service received an authorization error '%2'."
    ),
    "ResourceCannotBeDeleted": _critical(
        "The delete request failed because the resource requested cannot be deleted."
    ),
    "ResourceInStandby": _critical(
        "The request could not be performed because the resource is in standby."
    ),
    "ResourceMissingAtURI": _critical("The resource at the URI '%1' was not found."),
    "ServiceDisabled": _warning(
        "The operation failed because the service at %1 is disabled and cannot accept requests."
    ),
    "ServiceTemporarilyUnavailable": _critical(
        "The service is temporarily unavailable.  Retry in %1 seconds."
    ),
    "StringValueTooLong": _warning("The string '%1' exceeds the length limit %2."),
    "Success": _ok("The request completed successfully."),
}
