"""The settings that the service was started with."""

from dataclasses import dataclass, field
from pathlib import Path

from llmendpoint_batch.core.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Settings:
    """As in `--help`. Times are seconds. `database`: the URL of PostgreSQL, with its password; None: SQLite in `data`."""

    data: Path | None
    gateway: str
    host: str = "0.0.0.0"
    port: int = 8080
    state_port: int = 8081
    concurrency: int = 8
    request_seconds: float = 1800.0
    retention_seconds: float = 30 * 86400.0
    database: str | None = field(default=None, repr=False)
    bounds: Bounds = field(default_factory=Bounds)
