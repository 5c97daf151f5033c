"""A caller of the picker without Envoy: what it asks on ext_proc, and what it is told."""

from typing import Any

import orjson
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from llmendpoint_gateway.serve.request.ext_proc import Picker

BODY = b'{"model": "chat"}'
CHAT_PATH = "/v1/chat/completions"


class Caller:
    """A stream of ext_proc, and what the picker said on it."""

    def __init__(self) -> None:
        self.state: Any = None
        self.replies: list[pb.ProcessingResponse] = []

    def send(self, message: bytes) -> None:
        self.replies.append(pb.ProcessingResponse.FromString(message))

    def asks(self, picker: Picker, body: bytes | None = BODY, **more: str) -> None:
        """`more`: headers; those of HTTP without their colon."""
        names = {"method": ":method", "path": ":path"}
        pairs = {"method": "POST", "path": CHAT_PATH, "x-forwarded-for": "10.9.9.9", **more}
        pairs = {names.get(name, name.replace("_", "-")): value for name, value in pairs.items()}
        headers = HeaderMap(headers=[HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs.items()])
        head = pb.HttpHeaders(headers=headers, end_of_stream=body is None)
        messages = [pb.ProcessingRequest(request_headers=head)]
        if body is not None:
            messages.append(pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True)))
        for message in messages:
            picker.message(self, message.SerializeToString())  # type: ignore[arg-type]

    @property
    def headers(self) -> dict[str, str]:
        """That the request goes on with."""
        response = self.replies[-1]
        common = response.request_body.response if response.HasField("request_body") else None
        common = common or response.request_headers.response
        return {h.header.key: h.header.raw_value.decode() for h in common.header_mutation.set_headers}

    @property
    def code(self) -> str | None:
        """Of the error that it was answered with."""
        answer = self.replies[-1].immediate_response
        return orjson.loads(answer.body)["error"]["code"] if answer.body else None
