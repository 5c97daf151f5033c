"""Writes ext_proc's messages to Envoy: from answers to bytes.

Answers repeat (same cluster, same replicas), so their bytes are made once.
"""

from datetime import timedelta
from functools import lru_cache

import orjson
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from llmendpoint_gateway.core.envoy.resources import (
    CLUSTER_HEADER,
    DESTINATION_HEADER,
    KEY_FIELD,
    LOGGED_METADATA,
    TAG_HEADER,
    TRIAL_HEADER,
)
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.core.request.replies import error_body
from llmendpoint_gateway.core.request.request import LENGTH, Tag

TRIAL, WATCHED = "1", "watched"
"""Why every outcome of a request is reported: it tests a replica, or was present when one crashed."""
CONTINUE = pb.ProcessingResponse(request_headers=pb.HeadersResponse()).SerializeToString()


@lru_cache(maxsize=4096)
def route_to(
    cluster: str,
    addresses: tuple[str, ...],
    with_body: bool,
    mark: str | None = None,
    first_byte: float | None = None,
    total: float | None = None,
) -> bytes:
    """Continue to this cluster and these replicas in order. `mark`: TRIAL or WATCHED. `first_byte`: seconds within
    which each replica must begin to answer. `total`: seconds within which the whole answer must be complete.

    A single replica is named twice: a new connection may be all that its retry needs.
    """
    twice = addresses if len(addresses) > 1 else addresses * 2
    headers = {CLUSTER_HEADER: cluster, DESTINATION_HEADER: ",".join(twice)}
    if mark is not None:
        headers[TRIAL_HEADER] = mark
    if first_byte is not None:
        # Limits one attempt. Envoy drops it once a part of the answer was sent on.
        headers["x-envoy-upstream-rq-per-try-timeout-ms"] = str(round(first_byte * 1000))
    if total is not None:
        headers["x-envoy-upstream-rq-timeout-ms"] = str(round(total * 1000))
    return _response(with_body, pb.CommonResponse(header_mutation=_mutation(headers), clear_route_cache=True))


def tagged(reply: bytes, tag: Tag, with_body: bool, more: dict[str, str] | None = None) -> bytes:
    """The answer of `route_to` with what belongs to this request only: its tag, and `more` headers.

    Protobuf messages that are written one after another are one message, whose lists are joined. So the cached bytes
    stay unchanged.
    """
    before, after = _TAG[with_body]
    rest = _response(with_body, pb.CommonResponse(header_mutation=_mutation(more))) if more else b""
    return b"".join((reply, before, tag.encode().encode(), after, rest))


@lru_cache(maxsize=4096)
def of_key(key: str) -> bytes:
    """What makes Envoy's log name the LLMKey. Goes with any answer: messages that are written one after another are one message."""
    fields = {KEY_FIELD: key}
    return _bytes(pb.ProcessingResponse(dynamic_metadata={LOGGED_METADATA: fields}))


def wait(seconds: float) -> bytes:
    """The answer takes longer than a decision may: Envoy must wait `seconds` for it."""
    return _bytes(pb.ProcessingResponse(override_message_timeout=timedelta(seconds=seconds)))


def refuse(rejected: Rejected) -> bytes:
    """The answer of an open breaker or a full queue goes to many requests, so it is cached. One that repeats a client's
    words is not."""
    fixed = rejected.status >= 429 or rejected.status in (401, 403)
    return _kept_refusal(rejected) if fixed else _refusal(rejected)


def _refusal(rejected: Rejected) -> bytes:
    more = {} if rejected.retry_after is None else {"retry-after": str(rejected.retry_after)}
    if rejected.final:
        more["x-should-retry"] = "false"  # OpenAI's SDKs obey it
    if rejected.status == 401:
        more["www-authenticate"] = "Bearer"
    if rejected.allow is not None:
        more["allow"] = rejected.allow
    return answer(rejected.status, orjson.dumps(error_body(rejected)), more)


_kept_refusal = lru_cache(maxsize=1024)(_refusal)


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


def _response(with_body: bool, common: pb.CommonResponse) -> bytes:
    if with_body:
        return _bytes(pb.ProcessingResponse(request_body=pb.BodyResponse(response=common)))
    return _bytes(pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=common)))


def _around_tag(with_body: bool) -> tuple[bytes, bytes]:
    """The bytes before and after a tag. The tag's length, 48, is the byte "0", so the placeholder has another digit."""
    some = "f" * LENGTH
    message = _response(with_body, pb.CommonResponse(header_mutation=_mutation({TAG_HEADER: some})))
    before, _, after = message.partition(some.encode())
    return before, after


_TAG = {with_body: _around_tag(with_body) for with_body in (False, True)}
