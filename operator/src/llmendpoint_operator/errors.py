"""The operator's errors.

OperatorError
├── SpecError              a user's object cannot be rendered; `field` says where
├── SchemaError            a pydantic model cannot be turned into a structural schema (found by `make crds`)
├── LeadershipLost         the Lease could not be renewed; the process must end
├── NotOwned               an object with a child's name belongs to another owner; the operator does not
change it
├── Unanswered             a pod or gateway gave the operator no usable answer; the rollout goes on without it
└── ApiError               the API server answered with an error
    ├── Conflict           409: the object changed after it was read; read it again
    ├── Gone               410: the watch's resourceVersion is too old; list again
    ├── NotFound           404
    └── Refused            400, 403, 422: a retry is refused too, until the spec or the cluster changes
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of the operator's errors."""


class SpecError(OperatorError):
    """`field` of an LLMEndpoint or LLMRuntime cannot be rendered; the message says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class SchemaError(OperatorError):
    """The API server would refuse this schema."""


class LeadershipLost(OperatorError):
    """Another process holds the Lease, or the Lease expired before it was renewed."""


class NotOwned(OperatorError):
    """Kind and name of the object; `holder` is a value of Holder and says whose it is."""

    def __init__(self, kind: str, name: str, holder: str) -> None:
        super().__init__(f"{kind} {name} is not ours")
        self.kind = kind
        self.name = name
        self.holder = holder


class Unanswered(OperatorError):
    """No answer, or an unusable one. `status` is the HTTP status, 0 if there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ApiError(OperatorError):
    """The API server refused or failed a call. `status` is the HTTP status, 0 if there was no answer."""

    def __init__(self, status: int, message: str, target: str = "") -> None:
        super().__init__(f"{target}: {message}" if target else message)
        self.status = status
        self.message = message
        self.target = target


class Conflict(ApiError):
    """HTTP 409."""


class Gone(ApiError):
    """HTTP 410."""


class NotFound(ApiError):
    """HTTP 404."""


class Refused(ApiError):
    """HTTP 400, 403 or 422."""


def api_error(status: int, message: str, target: str = "") -> ApiError:
    """The error for an HTTP status."""
    kinds: dict[int, type[ApiError]] = {
        400: Refused,
        403: Refused,
        404: NotFound,
        409: Conflict,
        410: Gone,
        422: Refused,
    }
    return kinds.get(status, ApiError)(status, message, target)
