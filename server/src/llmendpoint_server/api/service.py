"""What the routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_server.api.engine_client import EngineClient
from llmendpoint_server.api.metrics import Metrics
from llmendpoint_server.api.tokenizer import ModelTokenizer


@dataclass
class Service:
    """`served_names`: what requests may put in `model`; answers carry the first. `started` is in Unix seconds."""

    engine: EngineClient
    tokenizer: ModelTokenizer
    metrics: Metrics
    served_names: tuple[str, ...]
    default_sampling: dict[str, float]
    version: str
    instance: str
    started: int
