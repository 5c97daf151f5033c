"""What the routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_server.api.interfaces import Engine, Tokenizer
from llmendpoint_server.api.metrics import Metrics


@dataclass
class Service:
    """`served_names`: what requests may put in `model`; answers carry the first. `started` is in Unix seconds."""

    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics
    served_names: tuple[str, ...]
    default_sampling: dict[str, float]
    version: str
    instance: str
    started: int
