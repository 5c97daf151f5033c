"""What a request claims in a queue."""

from dataclasses import dataclass

from llmendpoint_gateway.core.identity.priority import Priority


@dataclass(frozen=True, slots=True)
class Claim:
    """`size`: bytes of the request's body. `caller`: as in core/identity/caller.py."""

    size: int = 0
    caller: int = 0
    priority: Priority = Priority.NORMAL
