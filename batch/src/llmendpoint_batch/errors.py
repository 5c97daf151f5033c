"""Every error that this package raises.

BatchError
├── Refused          a request that gets an error answer; it holds the answer
├── StorageFailed    nothing that was acknowledged is lost; trying again later is right
│   ├── StorageFull  the volume or the database has no room, or fails
│   └── StorageAway  the database cannot be reached, or the connection to it broke
├── NotKept          events of a response are not kept any more
├── InUse            another process has the data folder, or the database
├── BadUrl           the URL of the database is none
└── IllegalMove      a batch was told to do what its status does not allow: an error of this program
"""


class BatchError(Exception):
    """The base class of everything that this package raises on purpose."""


class Refused(BatchError):
    """`param`: the field at fault. `code`: a word for programs."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value", status: int = 400
    ) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status


class StorageFailed(BatchError):
    """Says what could not be written or read, and why."""


class StorageFull(StorageFailed):
    """Says what could not be written, and why."""


class StorageAway(StorageFailed):
    """Says why. A write whose COMMIT was under way may be done or not."""


class NotKept(BatchError):
    """Says why. Empty: the response was cancelled or deleted."""


class BadUrl(BatchError):
    """Says what form is right. It does not quote the URL, which holds a password."""


class InUse(BatchError):
    """Says what another process has."""


class IllegalMove(BatchError):
    """Says which event met which status."""
