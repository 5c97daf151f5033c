"""What the tests of several commands share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .api_server import ApiServer, write_config


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> str:
    """The path of a kubeconfig for it."""
    return write_config(tmp_path / "config", server.url)
