"""The settings that a picker was started with."""

from dataclasses import dataclass
from pathlib import Path

from llmendpoint_gateway.access import Access
from llmendpoint_gateway.core.identity.authentication import Authentication


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespace`: the only one that is served; None: all. `operator`: the user that may write
    (serve/identity/token_reviews.py); None: no user. The others are as in `--help`."""

    socket: Path
    host: str
    http_port: int
    access: Access
    namespace: str | None
    hold_seconds: float
    operator: str | None
    trusted_hops: int
    traces_endpoint: str | None
    trace_sampling: float
    authentication: Authentication
