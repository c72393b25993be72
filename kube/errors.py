"""Errors, in three categories.

* `FieldError`: an object is invalid. A value: collected, returned, shown.
* A valid object that does not fit is a `DoesNotFit` of the allocator, also a value.
* Exceptions, where the caller cannot continue::

    DrawbridgeError
    |-- ConfigError        invalid settings, profile files or flags
    |-- ObjectFileError    a file does not hold Kubernetes objects; with file and line
    |   `-- NotEditable        its text cannot be edited
    |-- QuantityError      a text is not a quantity
    |-- CelError
    |   |-- InvalidSelector      does not compile, or is not boolean
    |   |-- UnsupportedSelector  valid upstream, not supported by our engine: result unknown
    |   |   `-- SelectorTooCostly  above what an expression may cost here
    |   `-- SelectorFailed       evaluation on a device ended in an error
    |       `-- NotBoolean       evaluation on a device gave another type
    `-- KubeError          the API server rejected a call, or did not respond
        |-- AlreadyExists, Conflict, Gone, Invalid, NotFound, Throttled
        `-- Forbidden
            `-- NamespaceTerminating

Anything else is a bug.
"""

import msgspec


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in a field of an object.

    Attributes:
        path: The field, as the API server writes it: `spec.containers[0].resources.limits[a.b/c]`.
        message: The error and the value found.
        fix: A correct value; empty if the message already names it.
    """

    path: str
    message: str
    fix: str = ""


class DrawbridgeError(Exception):
    """The root of all exceptions that this project raises deliberately."""


class ConfigError(DrawbridgeError):
    """Invalid settings, profile file or flag; the message is for the operator."""


class ObjectFileError(DrawbridgeError):
    """A text is not a stream of Kubernetes objects; the message names file and line."""


class NotEditable(ObjectFileError):
    """The text of a file has a form that cannot be edited; the message names the form."""


class QuantityError(DrawbridgeError, ValueError):
    """A text is not a Kubernetes quantity."""


class CelError(DrawbridgeError):
    """A CEL expression has no result."""


class InvalidSelector(CelError):
    """An expression does not compile or is not boolean; ends an attempt, as upstream."""


class UnsupportedSelector(CelError):
    """An expression that upstream accepts is not supported by our engine; never a denial."""


class SelectorTooCostly(UnsupportedSelector):
    """An expression may cost more than the limit of this engine; the message has the reason."""


class SelectorFailed(CelError):
    """The evaluation of an expression on a device failed; ends an attempt, as upstream."""


class NotBoolean(SelectorFailed):
    """The evaluation of an expression on a device did not give a boolean."""


class KubeError(DrawbridgeError):
    """The API server rejected a call or did not respond.

    Attributes:
        status: The HTTP status; 0 without a response, 200 if the response was invalid.
        reason: `status.reason` of the response, such as `AlreadyExists`.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class AlreadyExists(KubeError):
    """409, reason AlreadyExists: an object of that name exists."""


class Conflict(KubeError):
    """409: the object has changed since it was read, or a precondition does not hold."""


class Forbidden(KubeError):
    """403: the account lacks permission."""


class NamespaceTerminating(Forbidden):
    """403: nothing new can be created in a namespace that is being deleted.

    Source: the cause of that name, k8s.io/api/core/v1 NamespaceTerminatingCause.
    """


class Gone(KubeError):
    """410: the resourceVersion is too old; list again.

    Attributes:
        continuation: The token for the rest of a list, in its present state; empty if there is none.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", continuation: str = ""
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.continuation = continuation


class Invalid(KubeError):
    """422: the object is invalid."""


class NotFound(KubeError):
    """404: there is no such object."""


class Throttled(KubeError):
    """429: too many requests; retry later."""
