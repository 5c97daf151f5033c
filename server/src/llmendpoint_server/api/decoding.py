"""Bodies of the routes beside the completions: from bytes to a type, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from llmendpoint_server.api.explain import explain
from llmendpoint_server.errors import unknown_model

T = TypeVar("T")


class BodyDecoder(Generic[T]):
    """`forms`: what each field must be; see `explain`."""

    def __init__(self, kind: type[T], forms: Mapping[str, str]) -> None:
        self._decoder, self._forms = msgspec.json.Decoder(kind), forms

    def decode(self, data: bytearray) -> T:
        """Raises InvalidRequest, which names the field."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise explain(error, self._forms) from None


def check_model(name: str | None, served: Sequence[str]) -> None:
    """Raises UnknownModel. None: the caller named none, which vLLM's own routes allow."""
    if name is not None and name not in served:
        raise unknown_model(name, served)
