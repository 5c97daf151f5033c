"""One PostgreSQL for all tests; each takes a database of its own. A service for tests of responses, on both storages."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from batch.tests.postgres import Server, running_postgres
from batch.tests.responding import Stage
from batch.tests.running import service
from batch.tests.upstream import serve_upstream

SMALL = ("--storage-mib", "80", "--concurrency", "2")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_postgres() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def responses_stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    url = request.getfixturevalue("postgres").new_database() if request.param == "postgres" else ""
    data = tmp_path_factory.mktemp("data")
    async with serve_upstream() as upstream, service(data, upstream.url, *SMALL, database=url) as process:
        yield process, upstream
