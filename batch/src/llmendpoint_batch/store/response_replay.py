"""What a caller reads of a streamed background response: the events that are kept, and then its end."""

from dataclasses import dataclass

import msgspec

from llmendpoint_batch.core.event_stream import behind, event_of
from llmendpoint_batch.core.response_object import OPEN, shown_response
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import response_events, responses
from llmendpoint_batch.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole events up to the number `last`; perhaps none. `ended`: there are no more."""

    last: int
    data: bytes
    ended: bool


def check(connection: Connection, response_id: str, after: int) -> None:
    """Raises Refused if the response has no kept events, or did not come so far."""
    state, events = _state(connection, response_id)
    last = events - (state in OPEN)
    if after > last:
        told = f"starting_after is {after}, and the last event of {response_id} has the number {last}."
        raise Refused(told, param="starting_after")


def piece_after(connection: Connection, response_id: str, after: int) -> Piece:
    """Raises Refused if the response was deleted meanwhile."""
    while True:
        group = response_events.group_after(connection, response_id, after)
        if group is not None:
            return Piece(group.last, behind(group.data, after + 1 - group.first), False)
        state, events = _state(connection, response_id)
        if events > after + 1:
            continue  # written between the two reads
        if state in OPEN:
            return Piece(after, b"", False)
        if after >= events:
            return Piece(after, b"", True)
        answer = shown_response(responses.get(connection, response_id))
        return Piece(events, event_of(f"response.{state}", events, {"response": msgspec.Raw(answer)}), True)


def _state(connection: Connection, response_id: str) -> tuple[str, int]:
    """In one statement, so that the events are those of the state."""
    sql = "SELECT r.state, s.events FROM response_streams s JOIN responses r ON r.id = s.response WHERE s.response = ?"
    row = connection.execute(sql, (response_id,)).fetchone()
    if row is None:
        responses.get(connection, response_id)
        told = (
            f"The response {response_id} has no events to read: it was not created with background and stream, or its events, "
            "which are kept for an hour after its end, are deleted. Leave stream out."
        )
        raise Refused(told, param="stream", code="no_events")
    return str(row[0]), int(row[1])
