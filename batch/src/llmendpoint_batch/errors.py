"""Every error that this package raises.

BatchError
├── Refused          a request that gets an error answer; it holds the answer
├── StorageFull      the volume has no room, or fails; nothing that was acknowledged is lost
├── InUse            another process has the data folder
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


class StorageFull(BatchError):
    """Says what could not be written, and why."""


class InUse(BatchError):
    """Says which folder another process has."""


class IllegalMove(BatchError):
    """Says which event met which status."""
