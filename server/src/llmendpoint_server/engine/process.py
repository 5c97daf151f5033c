"""The engine process: one socket to the API process, one loop."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from llmendpoint_server import protocol
from llmendpoint_server.core.pooling.scheduler import PoolingScheduler
from llmendpoint_server.core.request import FinishReason, RequestOutput
from llmendpoint_server.engine.adapters.changes import Changes, load_at_start
from llmendpoint_server.engine.bring_up import ModelInfo, load
from llmendpoint_server.engine.connection import HEARTBEAT_SECONDS, Connection
from llmendpoint_server.engine.held import POLL_SECONDS, Held
from llmendpoint_server.engine.loading import open_folder
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.pooling import serving
from llmendpoint_server.engine.pooling.bring_up import load as load_pooling
from llmendpoint_server.engine.pooling.loop import PoolingEngine
from llmendpoint_server.engine.pooling.task import task_of
from llmendpoint_server.errors import BadConfiguration, LoadError, ProtocolError


def serve(connection: Connection) -> int:
    """Load, warm up, and compute until the API process ends. Returns the exit code."""
    settings = connection.first()
    connection.send(protocol.StateChanged("loading", f"reading {settings.model_path}"))
    try:
        engine, loaded, warm_up = bring_up(settings)
        structlog.get_logger().info("loaded", **msgspec.structs.asdict(loaded))
        connection.send(loaded, protocol.StateChanged("warming", "first generation"))
        warm_up()
    except EOFError:
        raise
    except LoadError as error:
        connection.send_last(protocol.StateChanged("failed", str(error), error.exit_code))
        return error.exit_code
    except Exception as error:  # any: the operator shows its name as the cause
        cause = f"The model cannot be loaded or run: {type(error).__name__}: {error}"
        connection.send_last(protocol.StateChanged("failed", cause, 1))
        return 1
    # Off since the start of the process. Frozen, because a full collection that visits all modules takes a third of a second.
    gc.freeze()
    gc.enable()
    connection.send(protocol.StateChanged("ready"), engine.stats())
    try:
        if isinstance(engine, PoolingEngine):
            return serving.compute(connection, engine)
        return compute(connection, engine)
    except EOFError:
        raise
    except Exception as error:  # any: no request is at fault, so the process ends and says why
        cause = f"The engine failed while serving: {type(error).__name__}: {error}"
        structlog.get_logger().error(cause)
        connection.send_last(protocol.StateChanged("failed", cause, 1))
        return 1


def bring_up(
    settings: protocol.Configure,
) -> tuple[Engine | PoolingEngine, protocol.Loaded, Callable[[], None]]:
    """The engine that the model's files ask for, what it says of itself, and its warm-up. Raises LoadError."""
    folder = open_folder(settings.model_path)
    task = task_of(folder)
    if task != "generate":
        if settings.max_loras:
            raise BadConfiguration(
                "--enable-lora: this model makes vectors, and adapters are for models that generate."
            )
        model = load_pooling(settings, folder, task)
        pooling = PoolingEngine(model.runner, PoolingScheduler(model.config))
        return pooling, model.loaded, pooling.warm_up
    runner, info = load(settings)
    engine = Engine(runner, make_scheduler(settings, info), ranks=runner.ranks, launcher=runner)
    if runner.stack is not None:
        load_at_start(runner.stack, engine.scheduler.adapters, settings.adapters)
    return engine, describe(settings, info), partial(engine.warm_up, info.max_model_len)


def describe(settings: protocol.Configure, info: ModelInfo) -> protocol.Loaded:
    return protocol.Loaded(
        architecture=info.architecture,
        max_model_len=info.max_model_len,
        max_num_seqs=info.max_num_seqs,
        max_queued_requests=settings.max_queued_requests,
        vocab_size=info.vocab_size,
        eos_token_ids=info.eos_token_ids,
        device=info.device,
        dtype=info.dtype,
        kv_pages=info.kv_pages,
        page_size=info.page_size,
        load_seconds=info.load_seconds,
        attention=info.attention,
        kernels=info.kernels,
        quantization=info.quantization,
        kv_cache_dtype=info.kv_dtype,
        prefix_caching=settings.prefix_caching,
    )


def compute(connection: Connection, engine: Engine) -> int:
    """The loop: take what has arrived, run one step, send its outputs."""
    told_idle = False
    stack = engine.runner.stack
    changes = Changes(stack, engine.scheduler) if stack is not None else None
    held = Held(engine.runner.masks, engine.scheduler.config.max_queued_requests)
    while True:
        scheduler = engine.scheduler
        outputs: list[RequestOutput] = []
        idle_for = POLL_SECONDS if held or changes else HEARTBEAT_SECONDS
        changed: list[protocol.AdapterChanged] = []
        for message in connection.receive(idle_for if scheduler.idle else 0):
            if isinstance(message, protocol.LoadAdapter | protocol.UnloadAdapter):
                changed += _change(changes, message)
            else:
                outputs += _handle(engine, held, message)
        for request, aborted in held.ready():
            outputs += engine.add(request)
            for index in aborted:
                outputs += engine.abort(request.id, index)
        if engine.ranks is not None:
            engine.ranks.check()
        if not scheduler.idle:
            outputs += engine.step()
        if changes:
            changed += changes.advance()
        messages: list[protocol.FromEngine] = [protocol.StepOutput(tuple(outputs))] if outputs else []
        messages += changed
        if scheduler.draining and scheduler.idle and not held and not told_idle:
            messages.append(protocol.StateChanged("draining", "idle"))
            told_idle = True
        connection.send(*messages, engine.stats())


def _change(
    changes: Changes | None, message: protocol.LoadAdapter | protocol.UnloadAdapter
) -> list[protocol.AdapterChanged]:
    if changes is None:
        raise ProtocolError("This engine was started without adapters.")
    return changes.ask(message)


def _handle(
    engine: Engine,
    held: Held,
    message: protocol.AddRequest
    | protocol.AddInputs
    | protocol.AbortRequest
    | protocol.Drain
    | protocol.Configure
    | protocol.UnreadableRequest,
) -> list[RequestOutput]:
    match message:
        case protocol.AddRequest(request) if held.takes(request):
            return held.hold(request)
        case protocol.AddRequest(request):
            return engine.add(request)
        case protocol.AddInputs(request):
            detail = "This model makes no vectors."
            return [RequestOutput(request.id, finish=FinishReason.FAILED, detail=detail)]
        case protocol.UnreadableRequest(request_id, detail):
            return [RequestOutput(request_id, finish=FinishReason.FAILED, detail=detail)]
        case protocol.AbortRequest(request_id, index):
            return held.abort(request_id, index) or engine.abort(request_id, index)
        case protocol.Drain():
            engine.scheduler.draining = True
            return []
        case protocol.Configure():
            raise ProtocolError("Configure came twice; an engine loads one model.")
