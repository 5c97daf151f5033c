"""One running gateway per test module: tests take endpoints of their own in it."""

from collections.abc import Iterator

import pytest

from gateway.tests.harness import Gateway, running_gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway() as running:
        yield running


def pytest_make_parametrize_id(val: object) -> str | None:
    """Each process makes keys of its own, and a test must have one name in all of them."""
    text = val.decode("latin-1") if isinstance(val, bytes) else val
    return "key" if isinstance(text, str) and "llm_" in text.lower() else None
