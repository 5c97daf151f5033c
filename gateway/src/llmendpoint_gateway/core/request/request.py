"""What the gateway keeps of a request: read once, of bounded size whatever the client sent, and never changed.

These are named tuples, because one of each is made for each request; a frozen dataclass takes twice as long.
"""

from typing import NamedTuple

from llmendpoint_gateway.core.identity.credentials import Proof
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.request.claim import Claim
from llmendpoint_gateway.core.request.paths import PROMPT_PATHS, Asked, ByPath, Socket
from llmendpoint_gateway.core.request.prompt import Prompt
from llmendpoint_gateway.core.request.refusals import Rejected

SHOWN = 200
"""How many characters of a client's text an error may repeat."""
DIGITS = 16


class Head(NamedTuple):
    """What is used of the headers. `path` and `media` are cut to what an error may show. `media`: the content type if
    it is not JSON. `encoded`: whether the body has a content encoding. `traceparent`: the caller's, as it came; one that is
    too long to be one is empty. `session`: a hash of the session's name; 0: none. `who`: the caller, or why it is not let in; None where
    keys are not looked at. `key`: `namespace/name` of the LLMKey, also of one that lets nobody in. `proof`: of its key. `bodiless`: Envoy keeps
    the body back and asks about the caller only."""

    method: str
    path: str
    asked: Asked
    caller: int
    priority: Priority = Priority.NORMAL
    body_follows: bool = False
    media: str = ""
    encoded: bool = False
    traceparent: str = ""
    session: int = 0
    who: Identity | Rejected | None = None
    key: str = ""
    bodiless: bool = False
    proof: Proof | None = None


class Body(NamedTuple):
    """What is used of the body. `print_`: a hash by which this process recognizes the same body. `problem`: why the
    body names no model, for the client. `prompt`: what is kept of its prompt, if it has one."""

    size: int
    print_: int
    model: str = ""
    stream: bool = False
    problem: str = ""
    prompt: Prompt | None = None


def has_prompt(head: Head) -> bool:
    """Whether the path is one of those whose bodies have a prompt that later ones may continue."""
    path = head.asked.path if isinstance(head.asked, ByPath) else head.path
    return path in PROMPT_PATHS or path.partition("?")[0] in PROMPT_PATHS


class Tag(NamedTuple):
    """Goes with a request to the replica and comes back in Envoy's log. `ticket`: the request's number; 0: none."""

    ticket: int = 0
    caller: int = 0
    print_: int = 0

    def encode(self) -> str:
        return "%016x%016x%016x" % self  # noqa: UP031 - half the time of an f-string


class Request(NamedTuple):
    """`body` is None if the request has none."""

    head: Head
    body: Body | None = None

    @property
    def caller(self) -> int:
        return self.head.caller

    def by(self, caller: int) -> "Request":
        """The same request of this caller."""
        return self if caller == self.head.caller else Request(self.head._replace(caller=caller), self.body)

    @property
    def print_(self) -> int:
        return 0 if self.body is None else self.body.print_

    @property
    def stream(self) -> bool:
        return self.body is not None and self.body.stream

    @property
    def prompt(self) -> Prompt | None:
        """With the session of the header, if it names one: that is meant for us, and the body for the engine."""
        prompt = None if self.body is None else self.body.prompt
        if prompt is not None and self.head.session:
            return prompt._replace(session=self.head.session)
        return prompt

    @property
    def socket(self) -> bool:
        return isinstance(self.head.asked, Socket)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return 0 if self.body is None else self.body.size

    @property
    def claim(self) -> Claim:
        return Claim(self.size, self.caller, self.head.priority)

    def tag(self, ticket: int) -> Tag:
        return Tag(ticket, self.caller, self.print_)


LENGTH = 3 * DIGITS


def read_tag(text: str) -> Tag:
    """An empty tag if the text is no tag."""
    if len(text) != LENGTH:
        return Tag()
    try:
        return Tag(*(int(text[at : at + DIGITS], 16) for at in range(0, LENGTH, DIGITS)))
    except ValueError:
        return Tag()
