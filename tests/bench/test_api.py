"""docs/benchmarks.md: `make bench-api` ends with an error, and does not hang, if its bare server does not start."""

import operator

import pytest

from tests.bench import bare_stream
from tests.bench.api import bare_server


def test_a_bare_server_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_stream, "serve", operator.add)  # raises in the other process
    with pytest.raises(RuntimeError, match="bare server has not started"), bare_server(0.1):
        pass
