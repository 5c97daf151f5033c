"""Where prompts lie, what replicas have left to compute, and how often a prompt went where its beginning is."""

from enum import Enum

from llmendpoint_gateway.core.placement.outstanding import NOTHING, Outstanding, Sent
from llmendpoint_gateway.core.placement.prefixes import Laid, Prefixes
from llmendpoint_gateway.core.request.prompt import Prompt


class Found(Enum):
    """Where the longest known beginning of a prompt was."""

    HERE = "here"  # the replica that got the prompt has it
    ELSEWHERE = "elsewhere"  # the replicas that have it were too busy, or could not take the request
    NOWHERE = "nowhere"


class Prompts:
    """`requests` with a prompt that went to a replica, by what was found. `bytes` of these prompts; `matched_bytes`: of
    their beginnings that their replicas had."""

    def __init__(self) -> None:
        self.prefixes, self.outstanding = Prefixes(), Outstanding()
        self.requests = dict.fromkeys(Found, 0)
        self.bytes = self.matched_bytes = 0

    def take(self, prompt: Prompt | None, cluster: str, adapter: str, address: str) -> Sent:
        """The request of this prompt goes to a replica."""
        if prompt is None:
            return NOTHING
        laid = self.prefixes.lay(cluster, adapter, prompt, address)
        found = Found.ELSEWHERE if laid.elsewhere else Found.HERE if laid.matched else Found.NOWHERE
        self.requests[found] += 1
        self.bytes += prompt.size
        self.matched_bytes += laid.matched
        return self._send(prompt, laid, address)

    def move(
        self, prompt: Prompt | None, cluster: str, adapter: str, failed: str, sent: Sent, address: str
    ) -> Sent:
        """The request failed at one replica, and goes to another."""
        self.outstanding.end(failed, sent)
        if prompt is None:
            return NOTHING
        return self._send(prompt, self.prefixes.lay(cluster, adapter, prompt, address), address)

    def _send(self, prompt: Prompt, laid: Laid, address: str) -> Sent:
        return self.outstanding.send(address, prompt.tokens(laid.matched))
