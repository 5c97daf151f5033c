"""The operator's errors.

OperatorError
├── SpecError              a user's object asks for something that cannot be rendered; `field` says where
├── SchemaError            a pydantic model cannot be turned into a structural schema (found by `make crds`)
├── LeadershipLost         the Lease could not be renewed; the process must end
├── NotOwned               an object that is not ours has the name of a child; it is left as it is
├── Unanswered             a pod or gateway did not answer a question of ours; the rollout goes on without the answer
└── ApiError               the API server answered with an error
    ├── Conflict           409: the object changed meanwhile, read again
    ├── Gone               410: the watch's resourceVersion is too old, list again
    ├── NotFound           404
    └── Refused            400, 403, 422: it will be refused again until somebody changes something
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of all errors raised here."""


class SpecError(OperatorError):
    """`field` of an LLMEndpoint or LLMRuntime cannot be rendered; the message says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class SchemaError(OperatorError):
    """A schema is not one that the API server takes."""


class LeadershipLost(OperatorError):
    """The Lease went to somebody else, or could not be renewed before it ended."""


class NotOwned(OperatorError):
    """Which object it is, and whose (a Holder)."""

    def __init__(self, kind: str, name: str, holder: str) -> None:
        super().__init__(f"{kind} {name} is not ours")
        self.kind = kind
        self.name = name
        self.holder = holder


class Unanswered(OperatorError):
    """No answer, or none that can be used. `status` is the HTTP status, 0 when there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ApiError(OperatorError):
    """The API server refused or failed a call. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, status: int, message: str, target: str = "") -> None:
        super().__init__(f"{target}: {message}" if target else message)
        self.status = status
        self.message = message
        self.target = target


class Conflict(ApiError):
    """409."""


class Gone(ApiError):
    """410."""


class NotFound(ApiError):
    """404."""


class Refused(ApiError):
    """400, 403 or 422."""


def api_error(status: int, message: str, target: str = "") -> ApiError:
    """The error class for an HTTP status."""
    kinds: dict[int, type[ApiError]] = {
        400: Refused,
        403: Refused,
        404: NotFound,
        409: Conflict,
        410: Gone,
        422: Refused,
    }
    return kinds.get(status, ApiError)(status, message, target)
