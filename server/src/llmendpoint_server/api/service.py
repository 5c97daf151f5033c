"""What the routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmendpoint_server.api.grammars import Grammars
from llmendpoint_server.api.interfaces import Engine, Tokenizer
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.tools.readers import AnswerFormat


@dataclass
class Service:
    """`served_names`: the values that requests may put in `model`; answers carry the first. `started`: Unix seconds.
    `answer_format`: how the model writes calls and reasoning. `default_deadline_ms`: for a request that names no deadline; None: it has none."""

    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics
    served_names: tuple[str, ...]
    default_sampling: SamplingDefaults
    version: str
    instance: str
    started: int
    default_deadline_ms: int | None = None
    answer_format: AnswerFormat = field(default_factory=AnswerFormat)
    grammars: Grammars = field(default_factory=lambda: Grammars(None))
