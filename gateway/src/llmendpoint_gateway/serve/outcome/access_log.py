"""Envoy's log of failed attempts and of trials. From it the picker learns at once which replica is dead or healthy."""

from collections.abc import AsyncIterator

import grpc
import structlog
from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogType, HTTPAccessLogEntry
from envoy.service.accesslog.v3 import als_pb2

from llmendpoint_gateway.core.envoy.bounds import SMALL_BODY_BYTES
from llmendpoint_gateway.core.envoy.resources import ATTEMPT_HEADER, KEPT_HEADER, TAG_HEADER, TRIAL_HEADER
from llmendpoint_gateway.core.envoy.routes import RUN_AGAIN
from llmendpoint_gateway.core.envoy.upstream_logs import (
    CRASHED_HEADER,
    LENGTH_HEADER,
    RETRIABLE_HEADER,
    SWITCHED,
)
from llmendpoint_gateway.core.outcome.attempt import Attempt, Outcome, read_outcome
from llmendpoint_gateway.core.request.request import read_tag
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.request.writing import TRIAL

ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"
log = structlog.get_logger()


def access_log_handler(outcomes: Outcomes) -> grpc.GenericRpcHandler:
    """The gRPC service to which Envoy sends the log."""

    async def read(
        requests: AsyncIterator[als_pb2.StreamAccessLogsMessage], _context: object
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in requests:
            for entry in message.http_logs.log_entry:
                take_entry(outcomes, entry)
        return als_pb2.StreamAccessLogsResponse()

    method = grpc.stream_unary_rpc_method_handler(
        read,
        als_pb2.StreamAccessLogsMessage.FromString,
        als_pb2.StreamAccessLogsResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(ACCESS_LOG, {"StreamAccessLogs": method})


def take_entry(outcomes: Outcomes, entry: HTTPAccessLogEntry) -> None:
    """Settle one entry. It holds what clients and engines sent: if it cannot be read, only this entry is lost."""
    try:
        outcomes.settle(read_attempt(entry))
    except Exception:  # any: this attempt does not count for its replica
        log.exception("a report of an attempt is lost")


def read_attempt(entry: HTTPAccessLogEntry) -> Attempt:
    common, flags = entry.common_properties, entry.common_properties.response_flags
    socket = common.upstream_remote_address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    status, headers = entry.response.response_code.value, entry.request.request_headers
    marks = entry.response.response_headers
    crashed = CRASHED_HEADER in marks
    broken = status != SWITCHED and (
        flags.upstream_connection_termination
        or flags.upstream_remote_reset
        or flags.upstream_protocol_error
        or crashed
    )
    outcome = read_outcome(
        status,
        unreachable=flags.upstream_connection_failure,
        timed_out=flags.upstream_request_timeout,
        broken=broken,
        retriable=RETRIABLE_HEADER in marks,
    )
    again = headers.get(ATTEMPT_HEADER, "1") != "1"
    # On other paths Envoy does not retry a request that the replica may have seen. It never retries one whose body it
    # has dropped (core/envoy/routes.py).
    anywhere = outcome is Outcome.UNREACHABLE or entry.request.path.partition("?")[0] in RUN_AGAIN
    kept = KEPT_HEADER in headers or int(headers.get(LENGTH_HEADER, 0)) <= SMALL_BODY_BYTES
    retriable = anywhere and kept
    begun = status > 0 and not crashed
    over = common.access_log_type == AccessLogType.UpstreamEnd
    return Attempt(
        f"{host}:{socket.port_value}",
        common.upstream_cluster,
        outcome,
        trial=headers.get(TRIAL_HEADER) == TRIAL,
        told=begun or again or not retriable,
        again=again,
        tag=read_tag(headers.get(TAG_HEADER, "")),
        retried=not again and kept and (RETRIABLE_HEADER in marks if begun else anywhere),
        broken=broken,
        # A running stream clears its replica, but not its request, which may still crash the replica. An answer from an
        # engine that is busy, or about to stop, does not clear the request either.
        whole=over and outcome is Outcome.ANSWERED and status < 500 and status != 429,
        over=over,
    )
