"""What the routes work with."""

from collections.abc import Callable
from dataclasses import dataclass

from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.work.times import Times


@dataclass(frozen=True, slots=True)
class Service:
    """`wake`: tells the runner that something changed."""

    database: Database
    folder: Folder
    times: Times
    settings: Settings
    wake: Callable[[], None]
