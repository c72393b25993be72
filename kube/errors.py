"""What can be wrong, in three kinds that never mix.

* `FieldError`: somebody's object is wrong. A value: collected, returned, shown.
* A good object that does not fit here is an `Unfit` of the allocator, also a value.
* Exceptions, for what the caller cannot go on from::

    DrawbridgeError
    |-- ConfigError        settings, profile files or flags that make no sense
    |-- ObjectFileError    text that is not Kubernetes objects, with file and line
    |-- QuantityError      text that is not a quantity
    |-- CelError
    |   |-- InvalidSelector      does not compile, or cannot be a boolean
    |   |-- UnsupportedSelector  legal upstream, beyond our engine: the verdict is unknown
    |   `-- SelectorFailed       raised while it was evaluated on a device
    |       `-- NotBoolean       gave something else than true or false
    `-- KubeError          the API server said no, or could not be asked
        |-- AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound, Throttled

Anything else is a bug.
"""

import msgspec


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One fault at one place of an object.

    Attributes:
        path: Where, as the API server writes it: `spec.containers[0].resources.limits[a.b/c]`.
        message: What is wrong and what was found.
        fix: What would be right; empty when the message already says so.
    """

    path: str
    message: str
    fix: str = ""


class DrawbridgeError(Exception):
    """The root of every exception that this project raises on purpose."""


class ConfigError(DrawbridgeError):
    """Settings, a profile file or a flag that make no sense; the message is for the operator."""


class ObjectFileError(DrawbridgeError):
    """Text that is not a stream of Kubernetes objects; the message names file and line."""


class QuantityError(DrawbridgeError, ValueError):
    """Text that is not a Kubernetes quantity."""


class CelError(DrawbridgeError):
    """A CEL expression that gave no verdict."""


class InvalidSelector(CelError):
    """An expression that does not compile or cannot be a boolean; ends an attempt, as upstream."""


class UnsupportedSelector(CelError):
    """An expression that upstream accepts and our engine cannot judge: never a denial."""


class SelectorFailed(CelError):
    """An expression that raised on a device; ends an attempt, as upstream."""


class NotBoolean(SelectorFailed):
    """An expression that gave something else than a boolean on a device."""


class KubeError(DrawbridgeError):
    """The API server refused a call, or could not be asked.

    Attributes:
        status: The HTTP status; 0 when there was no answer, 200 when it made no sense.
        reason: `status.reason` of the answer, such as `AlreadyExists`.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class AlreadyExists(KubeError):
    """409, reason AlreadyExists: somebody was first."""


class Conflict(KubeError):
    """409: the object changed since it was read, or a precondition did not hold."""


class Forbidden(KubeError):
    """403: the account may not."""


class Gone(KubeError):
    """410: the resourceVersion is too old; list again."""


class Invalid(KubeError):
    """422: the object is not valid."""


class NotFound(KubeError):
    """404: there is no such object."""


class Throttled(KubeError):
    """429: too many requests; come back later."""
