"""What is known of a request at its end, for its log line, its metrics and its spans: ids, sizes and times, never text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

NOT_LOGGED = frozenset({"answers", "max_tokens", "times"})


@dataclass(frozen=True, slots=True)
class Times:
    """Of a request that got a token, in seconds of the monotonic clock. `arrived`: its body was whole, and not tokenized yet.
    `began`: the engine began to compute it. `first_token`: the engine had its first token. `last_token`: its last token
    had come back."""

    arrived: float
    began: float
    first_token: float
    last_token: float

    @property
    def queue(self) -> float:
        return self.began - self.arrived

    @property
    def prefill(self) -> float:
        return self.first_token - self.began

    @property
    def decode(self) -> float:
        return self.last_token - self.first_token

    @property
    def inference(self) -> float:
        return self.last_token - self.began


def together(answers: Sequence[Times]) -> Times | None:
    """Of all answers to a body: from the first one that began to the last token of any."""
    if not answers:
        return None
    return Times(
        answers[0].arrived,
        min(one.began for one in answers),
        min(one.first_token for one in answers),
        max(one.last_token for one in answers),
    )


@dataclass
class Record:
    """`answers`: how many are asked for. `finish`: OpenAI's word for how the request ended, `abort` or `error`."""

    request_id: str = ""
    streamed: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    finish: str = ""
    first_token_s: float | None = None
    answers: int = 1
    max_tokens: int = 0
    times: Times | None = None

    def line(self) -> dict[str, Any]:
        """The fields of the request's log line."""
        line = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.first_token_s is not None:
            line["first_token_s"] = round(self.first_token_s, 4)
        return {name: value for name, value in line.items() if name not in NOT_LOGGED}
