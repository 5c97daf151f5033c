"""What was found about a limit: the evidence against it and for it, and the words for both."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_verdicts.shares import Share


@dataclass(frozen=True, slots=True)
class Question:
    """Is `green` above `limit` (broken) or below `allowed` (kept)? With `blue`, both are increases over its share."""

    green: Share
    limit: float
    allowed: float
    blue: Share | None = None


@dataclass(frozen=True, slots=True)
class Tested:
    """`broken`, `kept`: evidence, as logarithms (kept: infinite where it is not waited for). `question`: what was tested, None
    where nothing was. `near`: whether the figure is above the limit, or so near to it that it may be in truth."""

    broken: float
    kept: float
    question: Question | None = None
    near: bool = False


UNKNOWN, NOT_WAITED_FOR = Tested(-math.inf, -math.inf), Tested(-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Finding:
    """About one limit, which the spec names `field`. `said` says in words that the limit is broken, `figure` what was counted,
    whatever it means. `open`: reason and message as long as nothing is shown. `note`: what was left out."""

    reason: str
    field: str
    test: Tested
    open: Callable[[], tuple[str, str]]
    said: Callable[[], str] = str
    figure: Callable[[], str] = str
    note: str = ""
