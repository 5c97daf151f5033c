"""A rank that is not rank 0: its part of the weights and of the KV cache. It computes the steps that rank 0 tells it, and knows no request."""

from __future__ import annotations

import gc
from typing import NoReturn

import msgspec
import torch

from llmendpoint_server.core.batch import Batch
from llmendpoint_server.engine import bring_up
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.basis import Basis
from llmendpoint_server.engine.forward import forward
from llmendpoint_server.engine.headroom import Headroom
from llmendpoint_server.engine.loading import CausalLM
from llmendpoint_server.engine.parallel import group as groups
from llmendpoint_server.engine.parallel.messages import (
    ALIKE_SECONDS,
    COUNT,
    PAGES,
    ROOM,
    Failed,
    Join,
    Kind,
    Line,
    StepReader,
)
from llmendpoint_server.engine.preparing import Prepared
from llmendpoint_server.errors import LoadError


def work(line: Line) -> int:
    """Join, load, and compute until rank 0 ends. Returns the exit code."""
    try:
        _, body = line.receive()
        join = msgspec.msgpack.decode(body, type=Join)
        line.send(Kind.JOINED)
        settings = join.settings
        basis = Basis.of(settings)
        group = groups.join(join.rank, settings.tensor_parallel_size, basis.device, None, join.port)
        _compute(line, basis.prepare(settings, group), group)
    except EOFError:
        return 0
    except LoadError as error:
        return _failed(line, str(error), error.exit_code)
    except Exception as error:  # any: rank 0 says why the engine ends
        return _failed(line, f"{type(error).__name__}: {error}", 1)


def _failed(line: Line, cause: str, exit_code: int) -> int:
    line.send(Kind.FAILED, msgspec.msgpack.encode(Failed(cause, exit_code)))
    return exit_code


def _compute(line: Line, prepared: Prepared, group: groups.Group) -> NoReturn:
    """Until rank 0 closes the socket, which raises EOFError."""
    gc.freeze()
    gc.enable()
    steps, headroom = StepReader(), Headroom(group.device)
    backend: Backend | None = None
    while True:
        kind, body = line.receive()
        match kind:
            case Kind.PAGES:
                backend = None  # its memory is free before the next one takes its own
                steps.forget()
                headroom.begin()
                pages, page_size = PAGES.unpack(body)
                backend = prepared.make_backend(pages)
                if backend.cache.page_size != page_size:
                    raise RuntimeError(
                        f"its pages have {backend.cache.page_size} tokens and those of rank 0 have {page_size}: their logs say why"
                    )
            case Kind.ROOM if backend is not None:
                backend.reserve(*ROOM.unpack(body))
            case Kind.STEP if backend is not None:
                _step(line, prepared.model, backend, steps.read(body), group)
            case Kind.LEAST:
                group.least(bring_up.memory_left(headroom, group.size))
            case _:
                raise RuntimeError(f"rank 0 said {kind.name}, which does not fit here")


def _step(line: Line, model: CausalLM, backend: Backend, batch: Batch, group: groups.Group) -> None:
    """A step that raises on all ranks alike fails its request there, and this rank goes on. Raises what it raised if rank 0 does not say
    that it was so."""
    group.begun.collectives = 0
    try:
        with torch.inference_mode():
            forward(model, backend, backend.prepare(batch))
    except torch.AcceleratorError:
        raise
    except Exception:  # any: only rank 0 knows what the others met
        line.send(Kind.RAISED, COUNT.pack(group.begun.collectives))
        if not line.comes(ALIKE_SECONDS) or line.receive()[0] is not Kind.GO_ON:
            raise
