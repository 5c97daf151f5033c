"""ext_proc's messages: bytes to what is read of them, and answers to bytes.

Answers repeat (same cluster, same replicas), so their bytes are made once.
"""

import hashlib
from datetime import timedelta
from functools import lru_cache

import orjson
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogType, HTTPAccessLogEntry
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from llmendpoint_gateway.core.bounds import RETRY_BODY_BYTES
from llmendpoint_gateway.core.breaker import Attempt, Outcome, read_outcome
from llmendpoint_gateway.core.pick import Rejected
from llmendpoint_gateway.core.replies import error_body
from llmendpoint_gateway.core.resources import (
    ATTEMPT_HEADER,
    CLUSTER_HEADER,
    DESTINATION_HEADER,
    PRINT_HEADER,
    PRIORITY_HEADER,
    TRIAL_HEADER,
)
from llmendpoint_gateway.core.routes import COMPLETION_PATHS
from llmendpoint_gateway.core.upstream_logs import CRASHED_HEADER, LENGTH_HEADER, RETRIABLE_HEADER
from llmendpoint_gateway.core.waiting import Claim, Priority
from llmendpoint_gateway.errors import BadRequest

TRIAL, WATCHED = "1", "watched"
"""Why every outcome of a request is to be reported: it tries a replica, or was there when one crashed."""
CONTINUE = pb.ProcessingResponse(request_headers=pb.HeadersResponse()).SerializeToString()


def read_headers(message: bytes) -> tuple[str, str, bool]:
    """-> (method, path, whether a body follows)."""
    headers = pb.ProcessingRequest.FromString(message).request_headers
    method = path = ""
    for header in headers.headers.headers:
        if header.key == ":path":
            path = header.raw_value.decode("latin-1")
        elif header.key == ":method":
            method = header.raw_value.decode("latin-1")
    return method, path, not headers.end_of_stream


def read_claim(message: bytes, size: int) -> Claim:
    """Of the message with the headers: whose the request is and how urgent; its body has `size` bytes.

    A tenant is the hash of the token that came with the request; those without are one tenant together.
    """
    tenant, priority = b"", Priority.NORMAL
    for header in pb.ProcessingRequest.FromString(message).request_headers.headers.headers:
        if header.key == "authorization":
            scheme, _, token = header.raw_value.partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                tenant = hashlib.sha256(token.strip()).digest()
        elif header.key == PRIORITY_HEADER:
            name = header.raw_value.decode("latin-1").strip().upper()
            priority = Priority[name] if name in Priority.__members__ else Priority.NORMAL
    return Claim(size, tenant, priority)


def read_body(message: bytes) -> bytes:
    body: bytes = pb.ProcessingRequest.FromString(message).request_body.body
    return body


def read_model(body: bytes) -> str:
    """The body's `model`; BadRequest with a message for the client when there is none."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The request body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest(f"The request body must be a JSON object, not {type(document).__name__}.")
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("You must provide a `model` (a string); GET /v1/models lists what there is.")
    return model


def read_attempt(entry: HTTPAccessLogEntry) -> Attempt:
    common, flags = entry.common_properties, entry.common_properties.response_flags
    socket = common.upstream_remote_address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    status, headers = entry.response.response_code.value, entry.request.request_headers
    crashed = CRASHED_HEADER in entry.response.response_headers
    broken = (
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
        retriable=RETRIABLE_HEADER in entry.response.response_headers,
    )
    again = headers.get(ATTEMPT_HEADER, "1") != "1"
    over = common.access_log_type == AccessLogType.UpstreamEnd
    # What a stream that goes on says clears its replica; its request may still crash it. Nor did an engine live through
    # it that was busy, or is about to go.
    watched = over and outcome is Outcome.ANSWERED and status < 500 and status != 429
    # On other paths Envoy does not try again what the replica may have seen (core/routes.py), nor what
    # it has let go.
    retried = int(headers.get(LENGTH_HEADER, 0)) <= RETRY_BODY_BYTES and (
        outcome is Outcome.UNREACHABLE or entry.request.path.partition("?")[0] in COMPLETION_PATHS
    )
    return Attempt(
        f"{host}:{socket.port_value}",
        common.upstream_cluster,
        outcome,
        trial=headers.get(TRIAL_HEADER) == TRIAL,
        told=(status > 0 and not crashed) or again or not retried,
        again=again,
        print_=headers.get(PRINT_HEADER) if broken or watched else None,
        over=over,
    )


@lru_cache(maxsize=4096)
def route_to(
    cluster: str,
    addresses: tuple[str, ...],
    path: str | None,
    with_body: bool,
    mark: str | None = None,
    first_byte: float | None = None,
) -> bytes:
    """Continue to this cluster and these replicas in turn; `path` replaces the request's. `mark`: TRIAL or WATCHED.
    `first_byte`: seconds until which each replica is to have begun to answer."""
    headers = {CLUSTER_HEADER: cluster, DESTINATION_HEADER: ",".join(addresses)}
    if path is not None:
        headers[":path"] = path
    if mark is not None:
        headers[TRIAL_HEADER] = mark
    if first_byte is not None:
        # Of one attempt; Envoy drops it once something of the answer was sent on.
        headers["x-envoy-upstream-rq-per-try-timeout-ms"] = str(round(first_byte * 1000))
    common = pb.CommonResponse(header_mutation=_mutation(headers), clear_route_cache=True)
    if with_body:
        return _bytes(pb.ProcessingResponse(request_body=pb.BodyResponse(response=common)))
    return _bytes(pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=common)))


def print_of(body: bytes) -> str:
    """16 hexadecimal digits by which the same body is known again, in this process."""
    return f"{hash(body) & (1 << 64) - 1:016x}"


def printed(reply: bytes, print_: str) -> bytes:
    """The answer of `route_to`, with a body, and the request's print as one more header.

    Messages of protobuf that are written one after the other are one message, whose lists are joined: so the cached
    bytes stay what they are.
    """
    return b"".join((reply, _PRINT[0], print_.encode(), _PRINT[1]))


def wait(seconds: float) -> bytes:
    """The answer takes longer than a decision may; Envoy is to wait for it so many seconds."""
    return _bytes(pb.ProcessingResponse(override_message_timeout=timedelta(seconds=seconds)))


@lru_cache(maxsize=1024)
def refuse(rejected: Rejected) -> bytes:
    """Of an open breaker or a full queue one answer goes to many."""
    more = {} if rejected.retry_after is None else {"retry-after": str(rejected.retry_after)}
    if rejected.final:
        more["x-should-retry"] = "false"  # OpenAI's SDKs obey it
    return answer(rejected.status, orjson.dumps(error_body(rejected)), more)


def answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Answer the client at once, with JSON."""
    mutation = _mutation({"content-type": "application/json", **(headers or {})})
    return _bytes(
        pb.ProcessingResponse(
            immediate_response=pb.ImmediateResponse(status={"code": status}, headers=mutation, body=body)
        )
    )


def _bytes(message: pb.ProcessingResponse) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _mutation(headers: dict[str, str]) -> pb.HeaderMutation:
    return pb.HeaderMutation(
        set_headers=[
            HeaderValueOption(
                header=HeaderValue(key=key, raw_value=value.encode()),
                append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
            )
            for key, value in headers.items()
        ]
    )


def _print_message() -> tuple[bytes, bytes]:
    """Before and after the print."""
    common = pb.CommonResponse(header_mutation=_mutation({PRINT_HEADER: "0" * 16}))
    message = _bytes(pb.ProcessingResponse(request_body=pb.BodyResponse(response=common)))
    before, _, after = message.partition(b"0" * 16)
    return before, after


_PRINT = _print_message()
