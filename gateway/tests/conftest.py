"""One running gateway per test module: tests take endpoints of their own in it."""

from collections.abc import Iterator

import pytest

from gateway.tests.harness import Gateway, running_gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway() as running:
        yield running
