"""The fields of a chat's body for its template, its tools and its reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

from llmendpoint_server import limits
from llmendpoint_server.api.chat_options import ChatOptions
from llmendpoint_server.errors import InvalidRequest

if TYPE_CHECKING:
    from llmendpoint_server.api.schemas import ChatBody

OWN_VARIABLES = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
"""What the template gets from other fields."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_FLAG = "true or false"

FORMS: dict[str, str] = {
    "tools": f"a list of at most {limits.TOOLS_MAX} objects with type 'function' and function, an object with name, description "
    "and parameters (a JSON schema)",
    "tool_choice": "'none', 'auto', 'required', an object with type 'function' and function with a name of one in tools, or one with "
    "type 'allowed_tools' and allowed_tools, an object with mode ('auto' or 'required') and tools",
    "reasoning_effort": ", ".join(map(repr, EFFORTS[:-1])) + f" or {EFFORTS[-1]!r}",
    "include_reasoning": _FLAG,
    "add_generation_prompt": _FLAG,
    "continue_final_message": _FLAG,
    "chat_template_kwargs": f"an object of at most {limits.TEMPLATE_VARIABLES_MAX} values and "
    f"{limits.TEMPLATE_VARIABLES_BYTES_MAX} bytes, such as {{\"enable_thinking\": false}}",
    "documents": f"a list of at most {limits.DOCUMENTS_MAX} objects with title and text",
}  # fmt: skip

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def chat_options(body: ChatBody, tools: Any) -> ChatOptions:
    """Raises InvalidRequest. `tools`: as the template gets them."""
    continues = bool(body.continue_final_message)
    if continues and body.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other: an answer either goes on from the last "
            "message or begins a new one.",
            param="continue_final_message",
        )
    return ChatOptions(
        tools=tools,
        documents=_documents(body.documents),
        variables=_variables(body),
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final=continues,
    )


def _variables(body: ChatBody) -> dict[str, Any]:
    name = "chat_template_kwargs"
    data = bytes(body.chat_template_kwargs)
    if len(data) > limits.TEMPLATE_VARIABLES_BYTES_MAX:
        raise InvalidRequest(f"{name} must be {FORMS[name]}.", param=name)
    given = _decode(name, data, dict[str, Any] | None) or {}
    if len(given) > limits.TEMPLATE_VARIABLES_MAX:
        raise InvalidRequest(f"{name} must be {FORMS[name]}.", param=name)
    for own in OWN_VARIABLES:
        if own in given:
            raise InvalidRequest(
                f"{name}.{own} is not a variable of the caller's: send {own} as a field of the body.",
                param=f"{name}.{own}",
            )
    effort = {} if body.reasoning_effort is None else {"reasoning_effort": body.reasoning_effort}
    if body.reasoning_effort == "none":
        effort["enable_thinking"] = False  # type: ignore[assignment]  # as templates name it
    return effort | given


def _documents(value: Raw) -> list[dict[str, Any]] | None:
    documents: list[dict[str, Any]] | None = _decode("documents", bytes(value), list[dict[str, Any]] | None)
    if documents and len(documents) > limits.DOCUMENTS_MAX:
        raise InvalidRequest(f"documents must be {FORMS['documents']}.", param="documents")
    return documents


def _decode(name: str, data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidRequest(f"{name} must be {FORMS[name]}.", param=name) from None
