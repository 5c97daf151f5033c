"""Events of background responses that are streamed. Each function is part of one transaction.

A row of `response_streams` is a response that was asked for as a stream: `events` is the number of the next one, `deadline` is
until when they are kept, null until its end is seen. The last event is not kept: it is made of the response's answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llmendpoint_batch.core.bounds import EVENTS_BYTES, EVENTS_SECONDS
from llmendpoint_batch.core.event_stream import FIRST_EVENTS
from llmendpoint_batch.store.connection import Connection
from llmendpoint_batch.store.response_usage import IS_OPEN, account, usage


@dataclass(frozen=True, slots=True)
class Group:
    """Events `first` to `last` of a response, one behind the other."""

    response_id: str
    first: int
    last: int
    data: bytes


def begin(connection: Connection, response_id: str, data: bytes) -> None:
    """`data`: the events that the service itself makes."""
    connection.execute(
        "INSERT INTO response_streams (response, events, bytes) VALUES (?, 0, 0)", (response_id,)
    )
    _add(connection, Group(response_id, 0, FIRST_EVENTS - 1, data))


def add(connection: Connection, groups: Sequence[Group], most_bytes: int) -> dict[str, str]:
    """Returns why no more events of a response are kept, by its id; empty: it was cancelled or deleted."""
    refused = dict[str, str]()
    _, size = usage(connection)
    for group in groups:
        sql = f"SELECT s.bytes FROM response_streams s JOIN responses r ON r.id = s.response WHERE s.response = ? AND r.{IS_OPEN}"
        row = connection.execute(sql, (group.response_id,)).fetchone()
        if row is None:
            refused[group.response_id] = ""
        elif int(row[0]) + len(group.data) > EVENTS_BYTES:
            refused[group.response_id] = f"Its events have more than {EVENTS_BYTES} bytes."
        elif size + len(group.data) > most_bytes:
            told = f"There is no room for its events: all stored responses may have {most_bytes} bytes."
            refused[group.response_id] = told
        else:
            size += len(group.data)
            _add(connection, group)
    return refused


def _add(connection: Connection, group: Group) -> None:
    connection.execute(
        "INSERT INTO response_events (response, first, last, data) VALUES (?, ?, ?, ?)",
        (group.response_id, group.first, group.last, group.data),
    )
    connection.execute(
        "UPDATE response_streams SET events = ?, bytes = bytes + ? WHERE response = ?",
        (group.last + 1, len(group.data), group.response_id),
    )
    account(connection, 0, len(group.data))


def begun(connection: Connection, response_id: str) -> bool:
    """Whether callers may have seen events of the endpoint, so that it cannot be asked once more."""
    sql = "SELECT events FROM response_streams WHERE response = ?"
    row = connection.execute(sql, (response_id,)).fetchone()
    return row is not None and int(row[0]) > FIRST_EVENTS


def group_after(connection: Connection, response_id: str, number: int) -> Group | None:
    """The first group that has an event behind this one."""
    row = connection.execute(
        "SELECT response, first, last, data FROM response_events WHERE response = ? AND last > ? ORDER BY first LIMIT 1",
        (response_id, number),
    ).fetchone()
    return None if row is None else Group(str(row[0]), int(row[1]), int(row[2]), bytes(row[3]))


def remove(connection: Connection, response_id: str) -> None:
    row = connection.execute(
        "DELETE FROM response_streams WHERE response = ? RETURNING bytes", (response_id,)
    ).fetchone()
    if row is not None:
        connection.execute("DELETE FROM response_events WHERE response = ?", (response_id,))
        account(connection, 0, -int(row[0]))


def remove_old(connection: Connection, age: float, most: int) -> int:
    """Deletes events past their time; returns of how many responses."""
    connection.execute(
        "UPDATE response_streams SET deadline = ? WHERE deadline IS NULL AND response IN "
        f"(SELECT id FROM responses WHERE background = 1 AND NOT ({IS_OPEN}))",
        (age + EVENTS_SECONDS,),
    )
    sql = "SELECT response FROM response_streams WHERE deadline <= ? LIMIT ?"
    found = [str(row[0]) for row in connection.execute(sql, (age, most)).fetchall()]
    for response_id in found:
        remove(connection, response_id)
    return len(found)
