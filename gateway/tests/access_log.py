"""Entries of Envoy's log of attempts, as Envoy sends them."""

from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogType, HTTPAccessLogEntry
from google.protobuf.json_format import ParseDict

from llmendpoint_gateway.core.envoy.resources import ATTEMPT_HEADER, TAG_HEADER, TRIAL_HEADER
from llmendpoint_gateway.core.request.request import Tag
from llmendpoint_gateway.serve.request.writing import WATCHED

TAG = Tag(1, 2, 3)
CHAT_PATH = "/v1/chat/completions"


def entry(
    status: int, path: str = CHAT_PATH, attempt: int = 1, kind: str = "UpstreamEnd", **flags: bool
) -> HTTPAccessLogEntry:
    headers = {ATTEMPT_HEADER: str(attempt), TAG_HEADER: TAG.encode(), TRIAL_HEADER: WATCHED}
    body = {
        "common_properties": {
            "upstream_remote_address": {"socket_address": {"address": "10.0.0.1", "port_value": 8000}},
            "upstream_cluster": "a/chat/r1",
            "response_flags": flags,
            "access_log_type": AccessLogType.Value(kind),
        },
        "request": {"path": path, "request_headers": headers},
        "response": {"response_code": status} if status else {},
    }
    return ParseDict(body, HTTPAccessLogEntry())
