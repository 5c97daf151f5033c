"""The picker's gRPC side: one ext_proc stream per request, and Envoy's log of replicas that could not be reached.

A stream lives as long as its request, so a replica's requests in flight are its open streams: the count ends with
the answer's last byte, an error, or the client's disconnect alike.
"""

import time
from collections.abc import AsyncIterator

import grpc
import orjson
from envoy.service.accesslog.v3 import als_pb2

from llmendpoint_gateway import messages
from llmendpoint_gateway.control import Control
from llmendpoint_gateway.core.pick import Picked, Rejected, starting
from llmendpoint_gateway.core.replies import bad_request, model_list, one_model, unknown_path
from llmendpoint_gateway.core.request import Asked, ByModel, ByPath, GetModel, ListModels, Unknown, read_path
from llmendpoint_gateway.errors import BadRequest
from llmendpoint_gateway.metrics import Metrics

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"


class Picker:
    def __init__(self, control: Control, metrics: Metrics) -> None:
        self._control = control
        self._metrics = metrics

    def register(self, server: grpc.aio.Server) -> None:
        """Bytes in, bytes out: what is read of a message is little, and answers are made once."""
        process = grpc.stream_stream_rpc_method_handler(self._process)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(EXT_PROC, {"Process": process}),)
        )
        logs = grpc.stream_unary_rpc_method_handler(
            self._failed_connects,
            als_pb2.StreamAccessLogsMessage.FromString,
            als_pb2.StreamAccessLogsResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(ACCESS_LOG, {"StreamAccessLogs": logs}),)
        )

    async def _process(self, _requests: object, context: grpc.aio.ServicerContext) -> None:
        """One request: decide, then hold its place in the count until Envoy ends the stream."""
        message = await context.read()
        if message is grpc.aio.EOF:
            return
        method, path, body_follows = messages.read_headers(message)
        asked = read_path(method, path)
        body: bytes | None = None
        if body_follows and isinstance(asked, ByModel | ByPath):
            await context.write(messages.CONTINUE)
            message = await context.read()
            if message is grpc.aio.EOF:
                return
            body = messages.read_body(message)
        start = time.perf_counter()
        decision = self._decide(method, path, asked, body)
        if isinstance(decision, Picked):
            reply = messages.route_to(
                decision.cluster,
                decision.addresses,
                asked.path if isinstance(asked, ByPath) else None,
                body is not None,
            )
            self._metrics.decided("picked", time.perf_counter() - start)
            await self._serve(context, decision, reply)
            return
        if isinstance(decision, Rejected):
            self._metrics.decided(decision.code, time.perf_counter() - start)
            await context.write(messages.refuse(decision))
            return
        self._metrics.decided("answered", time.perf_counter() - start)
        await context.write(messages.answer(200, orjson.dumps(decision)))

    def _decide(
        self, method: str, path: str, asked: Asked, body: bytes | None
    ) -> Picked | Rejected | dict[str, object]:
        match asked:
            case ListModels() | GetModel() if not self._control.started:
                return starting()
            case ByModel():
                try:
                    return self._control.pick(messages.read_model(body or b""))
                except BadRequest as error:
                    return bad_request(str(error))
            case ByPath(endpoint):
                return self._control.pick(endpoint)
            case ListModels():
                return model_list(self._control.view)
            case GetModel(name):
                return one_model(name, self._control.view)
            case Unknown():
                return unknown_path(method, path)

    async def _serve(self, context: grpc.aio.ServicerContext, picked: Picked, reply: bytes) -> None:
        cluster, address = picked.cluster, picked.addresses[0]
        self._control.take(cluster, address)
        try:
            await context.write(reply)
            while await context.read() is not grpc.aio.EOF:
                pass
        finally:
            self._control.release(cluster, address)

    async def _failed_connects(
        self, requests: AsyncIterator[als_pb2.StreamAccessLogsMessage], _context: object
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in requests:
            for entry in message.http_logs.log_entry:
                address = entry.common_properties.upstream_remote_address.socket_address
                self._control.suspect(address.address, address.port_value)
        return als_pb2.StreamAccessLogsResponse()
