"""The engine process of a model that makes vectors: takes what has arrived, runs one step, sends its vectors."""

from __future__ import annotations

from llmendpoint_server import protocol
from llmendpoint_server.core.pooling.scheduler import StepResult
from llmendpoint_server.core.request import FinishReason, RequestOutput
from llmendpoint_server.engine.connection import HEARTBEAT_SECONDS, Connection
from llmendpoint_server.engine.pooling.loop import PoolingEngine
from llmendpoint_server.errors import ProtocolError


def compute(connection: Connection, engine: PoolingEngine) -> int:
    """Until the API process ends, which raises EOFError."""
    told_idle = False
    scheduler = engine.scheduler
    while True:
        ends: list[RequestOutput] = []
        for message in connection.receive(HEARTBEAT_SECONDS if scheduler.idle else 0):
            ends += _handle(engine, message)
        result = StepResult(ends=tuple(ends))
        if not scheduler.idle:
            result += engine.step()
        # The vectors go before the ends, which say that there are no more.
        messages: list[protocol.FromEngine] = []
        if result.vectors:
            messages.append(protocol.Vectors(result.vectors))
        if result.ends:
            messages.append(protocol.StepOutput(result.ends))
        if scheduler.draining and scheduler.idle and not told_idle:
            messages.append(protocol.StateChanged("draining", "idle"))
            told_idle = True
        connection.send(*messages, engine.stats())


def _handle(
    engine: PoolingEngine, message: protocol.ToEngine | protocol.UnreadableRequest
) -> list[RequestOutput]:
    match message:
        case protocol.AddInputs(request):
            return engine.add(request)
        case protocol.AddRequest(request):
            detail = "This model generates no text."
            return [RequestOutput(request.id, finish=FinishReason.FAILED, detail=detail)]
        case protocol.UnreadableRequest(request_id, detail):
            return [RequestOutput(request_id, finish=FinishReason.FAILED, detail=detail)]
        case protocol.AbortRequest(request_id):
            return engine.scheduler.abort(request_id)
        case protocol.Drain():
            engine.scheduler.draining = True
            return []
        case protocol.LoadAdapter() | protocol.UnloadAdapter():
            raise ProtocolError("A model that makes vectors has no adapters.")
        case protocol.Configure():
            raise ProtocolError("Configure came twice; an engine loads one model.")
