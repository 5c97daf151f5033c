"""Where the service's own time is kept between two runs."""

from llmendpoint_batch.core.clock import Saved
from llmendpoint_batch.store.connection import Connection


def saved(connection: Connection) -> Saved | None:
    row = connection.execute("SELECT age, wall FROM clock").fetchone()
    return Saved(*row) if row else None


def save(connection: Connection, now: Saved) -> None:
    connection.execute(
        "INSERT INTO clock (id, age, wall) VALUES (1, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET age = excluded.age, wall = excluded.wall",
        (now.age, now.wall),
    )
