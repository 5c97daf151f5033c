"""What the routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmendpoint_server.api.adapters import Adapter, Adapters
from llmendpoint_server.api.grammars import Grammars
from llmendpoint_server.api.interfaces import Engine, Tokenizer
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.tools.readers import AnswerFormat
from llmendpoint_server.api.traces import Traces, Untraced
from llmendpoint_server.errors import unknown_model


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
    traces: Traces = field(default_factory=Untraced)
    answer_format: AnswerFormat = field(default_factory=AnswerFormat)
    grammars: Grammars = field(default_factory=lambda: Grammars(None))
    adapters: Adapters | None = None
    """None: the server was started without --enable-lora"""

    def adapter_of(self, model: str) -> Adapter | None:
        """The adapter that a request's `model` names; None: it names the model itself. Raises UnknownModel."""
        if model in self.served_names:
            return None
        adapter = self.adapters.of(model) if self.adapters is not None else None
        if adapter is None:
            raise unknown_model(model, [*self.served_names, *self.adapter_names])
        return adapter

    @property
    def adapter_names(self) -> list[str]:
        return sorted(self.adapters.known) if self.adapters is not None else []
