"""The messages between the API process and the engine process, and their framing.

One Unix stream socket; each frame is a 4-byte big-endian length and a msgpack body (msgspec, tagged unions). The API
process starts `python -m llmendpoint_server.engine --socket-fd N`, sends `Configure`, and reads `StateChanged`
(loading), `Loaded`, and `StateChanged` (warming, then ready). Then requests go one way, and `StepOutput` the other.
Either side ends when it reads end of file. The API process handles stop strings and detokenization, and aborts a
request, or one answer of it, that has produced enough.

The life of a request: `AddRequest`, then any number of `StepOutput` entries for its id. The last of them for each of its n
answers, and only the last, has a `finish`. That holds for rejected, aborted and failed requests too; one that could not be
read has one end, of index 0. An abort of an id that has already ended
is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.pooling.request import PoolingRequest, Vector
from llmendpoint_server.core.request import Request
from llmendpoint_server.core.request import RequestOutput as RequestOutput
from llmendpoint_server.errors import ProtocolError

MAX_FRAME_BYTES = 64 * 2**20
_LENGTH = struct.Struct(">I")

Task = Literal["generate", "embed", "score"]
"""What a model is for: text, a vector for each text, or a number for each pair of texts."""
State = Literal["loading", "warming", "ready", "draining", "failed"]


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """The first frame to the engine: what to load and how.

    `model_path`: a local directory in transformers' layout (config.json, *.safetensors). `model_revision`: what
    names the content of these files, for the root of the prefix cache's hash chain. None: the engine chooses by the
    model and the machine. `max_batched_tokens`: what one step computes. `kv_cache_memory`: bytes,
    of each of the `tensor_parallel_size` ranks that the model is divided over.
    `max_loras`: 0: no adapters. `adapters`: those to load at the start, name and folder.
    `speculative_method`: how tokens are guessed ahead, if not by the model in `draft_model_path`; both None: they are not.
    """

    model_path: str
    model_revision: str = ""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: Literal["int8", "int4"] | None = None
    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_queued_requests: int = 256
    max_queued_tokens: int = 2**20
    max_batched_tokens: int | None = None
    kv_cache_memory: int | None = None
    prefix_caching: bool = True
    speculative_method: Literal["ngram"] | None = None
    draft_model_path: str | None = None
    num_speculative_tokens: int | None = None
    tensor_parallel_size: int = 1
    max_loras: int = 0
    max_lora_rank: int = 16
    adapters: tuple[tuple[str, str], ...] = ()


class AddRequest(msgspec.Struct, tag="add", frozen=True):
    request: Request


class AddInputs(msgspec.Struct, tag="add_inputs", frozen=True):
    """For a model that makes vectors. Its inputs come back as `Vectors`, in any order, before the request's one end."""

    request: PoolingRequest


class AbortRequest(msgspec.Struct, tag="abort", frozen=True):
    """`index`: the one answer to end; None: all of them."""

    id: str
    index: int | None = None


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """Reject new requests and finish the others. The engine then sends `StateChanged("draining", "idle")` and serves
    the socket until it is closed."""


class LoadAdapter(msgspec.Struct, tag="load_adapter", frozen=True):
    """Load the LoRA adapter in the folder `path`, in place of one with this name. Requests that are there keep what they began
    with. Comes back as `AdapterChanged` with this `call`, while steps go on."""

    call: int
    name: str
    path: str


class UnloadAdapter(msgspec.Struct, tag="unload_adapter", frozen=True):
    """Take no more requests for it. Those that are there go on. Comes back as `AdapterChanged`."""

    call: int
    name: str


class StateChanged(msgspec.Struct, tag="state", frozen=True):
    """`detail` is a sentence for people. After `failed` the engine exits with `exit_code`."""

    state: State
    detail: str = ""
    exit_code: int = 0


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The properties of the loaded model. Sent once, before `StateChanged("ready")`.

    `attention`: the backend's name. `kernels`: the variant of the CPU kernels, or `none`. `dimensions`: of an embedding.
    `cuts`: the lengths to which it may be cut; empty: any; None: none.
    """

    architecture: str
    max_model_len: int
    max_num_seqs: int
    max_queued_requests: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    device: str
    dtype: str
    kv_pages: int
    page_size: int
    load_seconds: float
    attention: str = "none"
    kernels: str = "none"
    quantization: str = "none"
    kv_cache_dtype: str = ""
    task: Task = "generate"
    dimensions: int = 0
    cuts: tuple[int, ...] | None = None
    prefix_caching: bool = True


Refused = Literal["", "unfit", "full", "unknown"]
"""Why an adapter did not change: it does not fit the model, there is no room for it, or there is none of this name."""


class AdapterChanged(msgspec.Struct, tag="adapter_changed", frozen=True):
    """`refused`: why nothing has changed; "": it has. `detail`: a sentence that says so. `generation`: the number of the load,
    of all loads of this engine."""

    call: int
    refused: Refused = ""
    detail: str = ""
    generation: int = 0


class Vectors(msgspec.Struct, tag="vectors", frozen=True):
    vectors: tuple[Vector, ...]


class StepOutput(msgspec.Struct, tag="output", frozen=True):
    outputs: tuple[RequestOutput, ...]


class Stats(msgspec.Struct, tag="stats", frozen=True):
    """The engine's load, after each step and at least once a second: it is the heartbeat too.

    `kv_usage`: share 0..1 of the pages that live requests hold. `outstanding_tokens`: what is still to be computed for
    all of them (prompt tokens not yet prefilled plus output tokens allowed). `waiting_tokens`: of the prompts that wait.
    `running_adapters`, `waiting_adapters`: that requests have, each once.
    """

    waiting: int = 0
    running: int = 0
    outstanding_tokens: int = 0
    kv_usage: float = 0.0
    counters: Counters = msgspec.field(default_factory=Counters)
    waiting_tokens: int = 0
    running_adapters: tuple[str, ...] = ()
    waiting_adapters: tuple[str, ...] = ()


class _RequestId(msgspec.Struct):
    id: str


class _AddAnything(msgspec.Struct, tag="add"):
    """What every `AddRequest` has, whatever else it holds; `_AddAnyInputs`: every `AddInputs`."""

    request: _RequestId


class _AddAnyInputs(msgspec.Struct, tag="add_inputs"):
    request: _RequestId


ToEngine = Configure | AddRequest | AddInputs | AbortRequest | Drain | LoadAdapter | UnloadAdapter
FromEngine = StateChanged | Loaded | StepOutput | Vectors | Stats | AdapterChanged

_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_id_of_request = msgspec.msgpack.Decoder(_AddAnything | _AddAnyInputs)
_from_engine: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


def encode(*messages: ToEngine | FromEngine) -> bytes:
    """The messages as frames, one after another, ready for one `sendall`."""
    frames = bytearray()
    for message in messages:
        body = _encoder.encode(message)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(
                f"A {type(message).__name__} of {len(body)} bytes; frames end at {MAX_FRAME_BYTES}."
            )
        frames += _LENGTH.pack(len(body))
        frames += body
    return bytes(frames)


class _FrameReader:
    """Cuts a byte stream into bodies; does no I/O itself."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        """the beginning of a frame"""
        self._needed = 0
        """bytes until that frame is whole, or until its length is"""

    def bodies(self, data: bytes) -> Iterator[memoryview]:
        """The whole bodies. What comes as whole frames is not copied."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        view, at, end = memoryview(data), 0, 0
        try:
            while (end := self._end_of_frame(view, at)) <= len(view):
                start, at = at + _LENGTH.size, end
                yield view[start:end]
        finally:  # the reader may leave before the last one
            self._buffer += view[at:]
            self._needed = end - at

    @staticmethod
    def _end_of_frame(view: memoryview, at: int) -> int:
        """Where the frame that begins at `at` ends, or its length if that is not there yet."""
        if len(view) < at + _LENGTH.size:
            return at + _LENGTH.size
        length: int = _LENGTH.unpack_from(view, at)[0]
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"A frame of {length} bytes was announced; frames end at {MAX_FRAME_BYTES}.")
        return at + _LENGTH.size + length


@dataclass(frozen=True, slots=True)
class UnreadableRequest:
    """An `AddRequest` of which only the id could be decoded. Only that request fails."""

    id: str
    detail: str


class EngineReader(_FrameReader):
    """The engine's side: `feed(bytes read)` yields whole messages."""

    def feed(self, data: bytes) -> Iterator[ToEngine | UnreadableRequest]:
        for body in self.bodies(data):
            try:
                message: ToEngine | UnreadableRequest = _to_engine.decode(body)
            except Exception as error:  # any: from msgspec, or from a `__post_init__`; this request fails
                message = _unreadable(body, error)
            yield message


def _unreadable(body: memoryview, error: Exception) -> UnreadableRequest:
    """Raises ProtocolError if the body is not an `AddRequest`."""
    try:
        request_id = _id_of_request.decode(body).request.id
    except msgspec.MsgspecError:
        raise ProtocolError(f"Not a message to the engine: {error}") from error
    return UnreadableRequest(request_id, f"The request cannot be read: {error}")


class ApiReader(_FrameReader):
    """The API process's side: `feed(bytes read)` yields whole messages."""

    def feed(self, data: bytes) -> Iterator[FromEngine]:
        for body in self.bodies(data):
            try:
                yield _from_engine.decode(body)
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"Not a message from the engine: {error}") from error
