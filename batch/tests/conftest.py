"""One PostgreSQL for all tests; each takes a database of its own."""

from collections.abc import Iterator

import pytest

from batch.tests.postgres import Server, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_postgres() as server:
        yield server
