"""Envoy's log of the attempts that failed, and of trials, from which the picker learns at once which replica is dead or well."""

from collections.abc import AsyncIterator

import grpc
from envoy.service.accesslog.v3 import als_pb2

from llmendpoint_gateway import messages
from llmendpoint_gateway.reports import Reports

ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"


def access_log_handler(reports: Reports) -> grpc.GenericRpcHandler:
    """The gRPC service that Envoy sends the log to."""

    async def read(
        requests: AsyncIterator[als_pb2.StreamAccessLogsMessage], _context: object
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in requests:
            for entry in message.http_logs.log_entry:
                reports.report(messages.read_attempt(entry))
        return als_pb2.StreamAccessLogsResponse()

    method = grpc.stream_unary_rpc_method_handler(
        read,
        als_pb2.StreamAccessLogsMessage.FromString,
        als_pb2.StreamAccessLogsResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(ACCESS_LOG, {"StreamAccessLogs": method})
