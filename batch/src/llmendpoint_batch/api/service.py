"""What the routes work with."""

from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.work.background import Background
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times


@dataclass(frozen=True, slots=True)
class Service:
    """`wake`: tells the runner that something changed."""

    database: Database
    blobs: Blobs
    sender: Sender
    background: Background
    times: Times
    settings: Settings
    wake: Callable[[], None]
