"""Where the service's own time is kept between two runs."""

import sqlite3

from llmendpoint_batch.core.clock import Saved


def saved(connection: sqlite3.Connection) -> Saved | None:
    row = connection.execute("SELECT age, wall FROM clock").fetchone()
    return Saved(*row) if row else None


def save(connection: sqlite3.Connection, now: Saved) -> None:
    connection.execute("INSERT OR REPLACE INTO clock (id, age, wall) VALUES (1, ?, ?)", (now.age, now.wall))
