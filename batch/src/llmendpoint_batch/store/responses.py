"""Rows of stored responses. Each function is part of one transaction.

A response has the id of the one that it continues. `chain_bytes` and `chain_items` are of all of them up to it, with its
own answer once it has one, so that a bound on the whole conversation is seen without reading it.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from llmendpoint_batch.core.bounds import (
    CHAIN_BYTES,
    CHAIN_DEPTH,
    CHAIN_KEPT_BYTES,
    MOST_ITEMS,
    MOST_QUEUED,
    MOST_RESPONSES,
)
from llmendpoint_batch.core.response_items import decode_items
from llmendpoint_batch.core.response_object import (
    CONTINUED,
    Final,
    State,
    Stored,
    cancelled,
    failed,
    output_of,
)
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import response_events
from llmendpoint_batch.store.connection import Connection
from llmendpoint_batch.store.response_usage import IS_OPEN, account, usage

COLUMNS = "id, state, model, created_at, background, priority, previous, fields, items, answer"
READ_BYTES, READ_ROWS = 8 << 20, 100
"""Of a conversation, read at a time."""
_CHAIN = (
    "WITH RECURSIVE chain(id, previous, depth) AS (SELECT id, previous, depth FROM responses WHERE id = ? UNION ALL "
    "SELECT r.id, r.previous, r.depth FROM responses r JOIN chain c ON r.id = c.previous) "
)


def create(
    connection: Connection,
    new: Stored,
    count: int,
    keep_until: float,
    deadline: float,
    most_bytes: int,
    events: bytes = b"",
) -> int:
    """Returns the bytes of the conversation before it. `count`: of its items. `events`: the first ones of a background response that is
    streamed. `keep_until`: the responses that it continues are kept so long, at least. `deadline`: its own.
    Raises Refused: no such response to continue, a conversation that is too long, or no room."""
    _check_room(connection, new, most_bytes)
    depth, before_bytes, before_items = 1, 0, 0
    if new.previous is not None:
        depth, before_bytes, before_items = _check_chain(connection, new, count)
        sql = _CHAIN + "UPDATE responses SET deadline = ? WHERE deadline < ? AND id IN (SELECT id FROM chain)"
        connection.execute(sql, (new.previous, keep_until, keep_until))
    own = len(new.items) + len(new.fields)
    connection.execute(
        f"INSERT INTO responses ({COLUMNS}, deadline, depth, chain_bytes, chain_items, size) "
        f"VALUES ({', '.join('?' * 15)})",
        (
            new.id, str(new.state), new.model, new.created_at, int(new.background), new.priority, new.previous, new.fields,
            new.items, None, deadline, depth, before_bytes + len(new.items), before_items + count, own,
        ),
    )  # fmt: skip
    account(connection, 1, own)
    if events:
        response_events.begin(connection, new.id, events)
    return before_bytes


def _check_room(connection: Connection, new: Stored, most_bytes: int) -> None:
    count, size = usage(connection)
    if count >= MOST_RESPONSES or size + len(new.items) + len(new.fields) > most_bytes:
        told = (
            f"{count} responses with {size} bytes are stored, and {MOST_RESPONSES} or {most_bytes} bytes is the most. Delete "
            "some (DELETE /v1/responses/ID), or send store: false."
        )
        raise Refused(told, param="store", code="storage_quota_exceeded", status=413)
    if new.background:
        (waiting,) = connection.execute(
            f"SELECT count(*) FROM responses WHERE background = 1 AND {IS_OPEN}"
        ).fetchone()
        if waiting >= MOST_QUEUED:
            told = f"{waiting} background responses are not finished, and {MOST_QUEUED} is the most. Try again later."
            raise Refused(told, param="background", code="too_many_responses", status=429)


def _check_chain(connection: Connection, new: Stored, count: int) -> tuple[int, int, int]:
    """The depth of the new one, and the bytes and items before it."""
    sql = "SELECT state, depth, chain_bytes, chain_items FROM responses WHERE id = ?"
    row = connection.execute(sql, (new.previous,)).fetchone()
    if row is None:
        raise _gone(str(new.previous))
    state, depth, size, items = row
    if state not in CONTINUED:
        told = f"The response {new.previous} is {state}. Only one that is completed or incomplete can be continued."
        raise Refused(told, param="previous_response_id", code="previous_response_not_finished")
    sql = _CHAIN + "SELECT count(*), coalesce(sum(r.size), 0) FROM chain c JOIN responses r ON r.id = c.id"
    found, kept = connection.execute(sql, (new.previous,)).fetchone()
    if found != depth:
        raise _gone(f"one that {new.previous} continues")
    if depth >= CHAIN_DEPTH or size > CHAIN_BYTES or items + count > MOST_ITEMS or kept > CHAIN_KEPT_BYTES:
        told = (
            f"The conversation that ends with {new.previous} has {depth} responses, {items} items and {size} bytes, "
            f"and {kept} bytes with what its answers repeat. The most is {CHAIN_DEPTH} responses, {MOST_ITEMS} items with the new ones, "
            f"{CHAIN_BYTES} bytes, and {CHAIN_KEPT_BYTES} bytes. Begin a new one."
        )
        raise Refused(told, param="previous_response_id", code="conversation_too_long")
    return depth + 1, int(size), int(items)


def _gone(response_id: str) -> Refused:
    told = f"No such response: {response_id[:100]}. It was deleted, is past its time, or was sent with store: false."
    return Refused(told, param="previous_response_id", code="previous_response_not_found")


def conversation(connection: Connection, previous: str | None) -> list[msgspec.Raw]:
    """The items of `previous` and of all that it continues, the oldest first: those sent, then those answered. Raises Refused
    where one of them was deleted meanwhile."""
    if previous is None:
        return []
    sql = _CHAIN + "SELECT r.id, r.size FROM chain c JOIN responses r ON r.id = c.id ORDER BY c.depth"
    chain = connection.execute(sql, (previous,)).fetchall()
    row = connection.execute("SELECT depth FROM responses WHERE id = ?", (previous,)).fetchone()
    if row is None or len(chain) != row[0]:
        raise _gone(previous if row is None else f"one that {previous} continues")
    found: list[msgspec.Raw] = []
    for ids in _groups(chain):
        sql = f"SELECT items, answer FROM responses WHERE id IN ({', '.join('?' * len(ids))}) ORDER BY depth"
        rows = connection.execute(sql, ids).fetchall()
        if len(rows) != len(ids):
            raise _gone(f"one that {previous} continues")
        for items, answer in rows:
            # Copies: otherwise each item would keep all of its answer in memory, which also repeats tools and instructions.
            found += (item.copy() for item in (*decode_items(items), *output_of(answer)))
    return found


def _groups(chain: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Ids whose rows are read at a time."""
    ids, size = list[str](), 0
    for response_id, more in chain:
        if ids and (size + more > READ_BYTES or len(ids) >= READ_ROWS):
            yield ids
            ids, size = [], 0
        ids.append(response_id)
        size += more
    if ids:
        yield ids


def chain_bytes(connection: Connection, previous: str) -> int:
    """Of the conversation that ends with it. Raises Refused if it cannot be continued."""
    new = Stored("", State.QUEUED, "", 0, False, "", previous, b"", b"")
    return _check_chain(connection, new, 0)[1]


def get(connection: Connection, response_id: str) -> Stored:
    """Raises Refused (404)."""
    row = connection.execute(f"SELECT {COLUMNS} FROM responses WHERE id = ?", (response_id,)).fetchone()
    if row is None:
        told = f"No such response: {response_id[:100]!r}. It was deleted, is past its time, or was sent with store: false."
        raise Refused(told, param="response_id", code="response_not_found", status=404)
    return _stored(row)


def waiting(connection: Connection) -> list[tuple[str, str, int]]:
    """Background responses that wait, in the order in which they came: id, model, and bytes of the whole request."""
    sql = (
        "SELECT id, model, chain_bytes + size FROM responses WHERE background = 1 AND state = ? ORDER BY seq"
    )
    return [(row[0], row[1], int(row[2])) for row in connection.execute(sql, (str(State.QUEUED),)).fetchall()]


def begin(connection: Connection, response_id: str) -> Stored | None:
    """A background response is being sent. None: it was cancelled or deleted meanwhile."""
    row = connection.execute(
        "UPDATE responses SET state = ? WHERE id = ? AND state = ? RETURNING " + COLUMNS,
        (str(State.IN_PROGRESS), response_id, str(State.QUEUED)),
    ).fetchone()
    return None if row is None else _stored(row)


def wait_again(connection: Connection, response_id: str, deadline: float) -> None:
    """It is sent once more. One whose callers have seen events fails: another attempt would say something else."""
    if response_events.begun(connection, response_id):
        told = "The service ended, or failed, before this response was whole. Send it again."
        finish(connection, response_id, failed(get(connection, response_id), told), deadline)
        return
    sql = "UPDATE responses SET state = ? WHERE id = ? AND state = ?"
    connection.execute(sql, (str(State.QUEUED), response_id, str(State.IN_PROGRESS)))


def finish(connection: Connection, response_id: str, final: Final, deadline: float) -> bool:
    """The end of a response that has none yet. False: it was cancelled or deleted meanwhile."""
    more = len(final.answer)
    cursor = connection.execute(
        "UPDATE responses SET state = ?, answer = ?, deadline = ?, size = size + ?, chain_bytes = chain_bytes + ?, "
        f"chain_items = chain_items + ? WHERE id = ? AND {IS_OPEN}",
        (str(final.state), final.answer, deadline, more, final.output_bytes, final.output_items, response_id),
    )
    if cursor.rowcount:
        account(connection, 0, more)
    return bool(cursor.rowcount)


def cancel(connection: Connection, response_id: str, deadline: float) -> Stored:
    """A second cancel, or one after the end, changes nothing. Raises Refused for one that is not in the background."""
    stored = get(connection, response_id)
    if not stored.background:
        told = f"The response {response_id} is not a background response. Only these can be cancelled."
        raise Refused(told, param="response_id", code="response_not_cancellable")
    finish(connection, response_id, cancelled(stored), deadline)
    return get(connection, response_id)


def remove(connection: Connection, response_id: str) -> None:
    """Raises Refused (404)."""
    get(connection, response_id)
    _delete(connection, [response_id])


def remove_old(connection: Connection, age: float, most: int) -> int:
    """Deletes ended responses past their time; returns how many."""
    sql = f"SELECT id FROM responses WHERE deadline <= ? AND NOT ({IS_OPEN}) LIMIT ?"
    found = [row[0] for row in connection.execute(sql, (age, most)).fetchall()]
    _delete(connection, found)
    return len(found)


def _delete(connection: Connection, ids: Sequence[str]) -> None:
    for response_id in ids:
        row = connection.execute(
            "DELETE FROM responses WHERE id = ? RETURNING size", (response_id,)
        ).fetchone()
        if row is not None:
            account(connection, -1, -int(row[0]))
        response_events.remove(connection, response_id)


def requeue(connection: Connection, deadline: float) -> int:
    """When the service starts: what an earlier process was sending is sent again. Returns how many."""
    sql = "SELECT id FROM responses WHERE background = 1 AND state = ?"
    found = [str(row[0]) for row in connection.execute(sql, (str(State.IN_PROGRESS),)).fetchall()]
    for response_id in found:
        wait_again(connection, response_id, deadline)
    return len(found)


def fail_lost(connection: Connection, live: Collection[str], age: float, deadline: float) -> int:
    """Fails what nobody brings to its end: a response whose process or caller is gone, and a background one that waited too
    long. `live`: those of this process. Returns how many."""
    sql = f"SELECT id FROM responses WHERE {IS_OPEN} AND (background = 0 OR deadline <= ?)"
    count = 0
    for response_id in {row[0] for row in connection.execute(sql, (age,)).fetchall()} - set(live):
        stored = get(connection, response_id)
        told = (
            "The endpoint did not answer within a day."
            if stored.background
            else "The service ended, or could not write the answer, before this response was whole. Send it again."
        )
        count += finish(connection, stored.id, failed(stored, told), deadline)
    return count


def _stored(row: Sequence[object]) -> Stored:
    response_id, state, model, created_at, background, priority, previous, fields, items, answer = row
    return Stored(
        str(response_id), State(str(state)), str(model), int(str(created_at)), bool(background), str(priority),
        None if previous is None else str(previous), _bytes(fields) or b"", _bytes(items) or b"", _bytes(answer),
    )  # fmt: skip


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None
