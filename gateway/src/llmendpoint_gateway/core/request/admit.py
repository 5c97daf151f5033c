"""Whether a request may pass, before its endpoint is known."""

from collections.abc import Callable

from llmendpoint_gateway.core.request.paths import ByModel, ByPath, NoUpgrade, Socket, TooLong, WrongMethod
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.core.request.replies import (
    failed,
    no_model,
    no_socket_model,
    no_upgrade,
    path_too_long,
    unknown_path,
    wrong_method,
)
from llmendpoint_gateway.core.request.request import Request

Takes = Callable[[str, str], bool]
"""(endpoint name, declared path) -> whether the endpoint takes the path."""


def admit(request: Request, takes: Takes) -> str | Rejected:
    """The name of the endpoint that the request is for, or the reason why it is refused."""
    head, body = request.head, request.body
    asked = head.asked
    if isinstance(asked, ByModel):
        name = "" if body is None else body.model
        if not name:
            return failed() if body is None else no_model(head, body)
    elif isinstance(asked, Socket):
        return asked.endpoint or no_socket_model()
    elif isinstance(asked, NoUpgrade):
        return no_upgrade(head)
    elif isinstance(asked, ByPath):
        name = asked.endpoint
    elif isinstance(asked, WrongMethod):
        return wrong_method(head, asked.allowed)
    elif isinstance(asked, TooLong):
        return path_too_long()
    else:
        return unknown_path(head)
    return name if not asked.declared or takes(name, asked.declared) else unknown_path(head)
