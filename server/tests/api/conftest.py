"""Clients of the server with the fake engine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

from server.tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def http(fake_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake_server.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def sdk(fake_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=fake_server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client
