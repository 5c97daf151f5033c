"""What a request for vectors asks for. A vector is an embedding, or one score."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from llmendpoint_server import limits
from llmendpoint_server.core.request import Priority
from llmendpoint_server.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Input:
    """Token ids of a text, or of a pair of texts. `second`: where the second text of a pair begins, if the model tells the
    two apart by types of tokens; 0: all tokens are of the first type."""

    tokens: tuple[int, ...]
    second: int = 0


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """Each input gets a vector. `arrival`, `priority` and `deadline` are those of a `Request`."""

    id: str
    inputs: tuple[Input, ...]
    arrival: float = 0.0
    priority: Priority = Priority.NORMAL
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= limits.INPUTS_MAX:
            raise InvalidRequest(
                f"input holds {len(self.inputs)} texts; it takes 1 to {limits.INPUTS_MAX}.", param="input"
            )


class Vector(msgspec.Struct, frozen=True, gc=False):
    """The vector of input `index` of request `id`: float32, little-endian."""

    id: str
    index: int
    values: bytes
