"""Fixtures that several files of tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .evidence_stage import World, staged


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Gateways and engines on loopback, and the collector that asks them."""
    async with staged(monkeypatch) as world:
        yield world
