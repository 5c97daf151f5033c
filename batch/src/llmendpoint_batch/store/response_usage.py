"""How many responses are stored, and their bytes, those of kept events included. Counted as they change: to count a million
rows takes a second."""

from llmendpoint_batch.core.response_object import OPEN
from llmendpoint_batch.store.connection import Connection

IS_OPEN = f"state IN ({', '.join(repr(str(state)) for state in OPEN)})"
"""A condition on a row of `responses`: it has no end yet."""


def usage(connection: Connection) -> tuple[int, int]:
    """Number of responses, and their bytes."""
    count, size = connection.execute("SELECT count, bytes FROM responses_usage").fetchone()
    return int(count), int(size)


def account(connection: Connection, count: int, size: int) -> None:
    connection.execute("UPDATE responses_usage SET count = count + ?, bytes = bytes + ?", (count, size))
