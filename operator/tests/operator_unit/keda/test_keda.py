"""docs/contribute/contracts.md: KEDA's external-scaler contract over real gRPC and TLS: what is unknown is UNAVAILABLE, never 0.

What goes over the wire is compared with bytes written by hand from KEDA's contract: our own messages on both sides would
agree on any mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from llmendpoint_operator.__main__ import parse
from llmendpoint_operator.app import _external_scaler
from llmendpoint_operator.core.scaling.opinion import Opinion
from llmendpoint_operator.keda.service import Certificates, ScalerServer
from llmendpoint_operator.settings import Keda
from tests.cluster.certificates import Identity, write_pki
from tests.ports import free_port

CHAT = b"\x0a\x04chat\x12\x06team-a"
"""ScaledObjectRef {name: chat, namespace: team-a}"""
ASK = b"\x0a" + bytes([len(CHAT)]) + CHAT + b"\x12\x08replicas"
"""GetMetricsRequest {scaledObjectRef: CHAT, metricName: replicas}"""
THREE, TRUE = b"\x00\x00\x00\x00\x00\x00\x08\x40", b"\x08\x01"
"""3.0 as a double, and a response whose first field is true."""


class Stage:
    """A Source that says what the test wants."""

    def __init__(self) -> None:
        self.opinion: Opinion | None = Opinion(True, 3)
        self._bell = asyncio.Event()

    def answer(self, key: tuple[str, str]) -> Opinion | None:
        return self.opinion if key == ("team-a", "chat") else None

    async def changed(self, key: tuple[str, str]) -> None:
        await self._bell.wait()
        self._bell.clear()

    def say(self, opinion: Opinion) -> None:
        self.opinion = opinion
        self._bell.set()


def make_certificates(folder: Path) -> Path:
    write_pki(folder, [Identity("tls", "operator", names=("localhost",)), Identity("keda", "keda")])
    return folder


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def asking(pki: Path, stage: Stage, client: Path | None = None) -> AsyncIterator[Any]:
    """A channel to a server for `stage`, with the certificate that lies in `client`."""
    client = client or pki
    async with ScalerServer(stage, Certificates(pki), 0, "127.0.0.1") as server:
        credentials = grpc.ssl_channel_credentials(
            (pki / "ca.crt").read_bytes(), (client / "keda.key").read_bytes(), (client / "keda.crt").read_bytes()
        )  # fmt: skip
        async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
            yield channel


async def ask(channel: Any, method: str, request: bytes = CHAT) -> bytes:
    answer: bytes = await channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")(request, timeout=20)
    return answer


async def test_the_four_questions_are_answered_as_the_contract_says(pki: Path) -> None:
    async with asking(pki, Stage()) as channel:
        assert await ask(channel, "IsActive") == TRUE
        spec = b"\x0a\x08replicas\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"
        assert await ask(channel, "GetMetricSpec") == b"\x0a" + bytes([len(spec)]) + spec
        value = b"\x0a\x08replicas\x19" + THREE
        assert await ask(channel, "GetMetrics", ASK) == b"\x0a" + bytes([len(value)]) + value


async def test_a_stream_tells_the_state_and_each_change_and_nothing_of_what_is_unknown(pki: Path) -> None:
    stage = Stage()
    stage.opinion = Opinion(False, 0)
    async with asking(pki, stage) as channel:
        stream = channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")(CHAT, timeout=30)
        assert await stream.read() == b""
        for opinion in (Opinion(None, None), Opinion(False, 0)):
            stage.say(opinion)
            await asyncio.sleep(0.05)
        stage.say(Opinion(True, 1))
        assert await stream.read() == TRUE
        stream.cancel()


@pytest.mark.parametrize(("method", "request_"), [("IsActive", CHAT), ("GetMetrics", ASK)])
async def test_what_is_unknown_is_unavailable_and_never_0(pki: Path, method: str, request_: bytes) -> None:
    stage = Stage()
    stage.opinion = Opinion(None, None)
    async with asking(pki, stage) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, method, request_)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "not the same as nothing to do" in refused.value.details()


async def test_an_endpoint_that_keda_does_not_scale_is_not_found(pki: Path) -> None:
    async with asking(pki, Stage()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, "IsActive", b"\x0a\x05other\x12\x06team-a")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert "team-a/other" in refused.value.details()


async def test_a_stranger_is_turned_away_at_the_handshake(pki: Path, tmp_path: Path) -> None:
    strangers = make_certificates(tmp_path)
    async with asking(pki, Stage(), client=strangers) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, "IsActive")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    folder = make_certificates(tmp_path)
    async with ScalerServer(Stage(), Certificates(folder), 0, "127.0.0.1") as server:
        for _ in range(2):  # the second round with another authority, which the first certificate is not of
            credentials = grpc.ssl_channel_credentials(
                *((folder / name).read_bytes() for name in ("ca.crt", "keda.key", "keda.crt"))
            )
            async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
                assert await ask(channel, "IsActive") == TRUE
            make_certificates(folder)


class WatchingWork:
    """What the process has before it holds the lease: caches that fill, and opinions."""

    def __init__(self, stage: Stage) -> None:
        self.opinions, self.caches, self.watched = stage, self, 0

    async def wait_synced(self) -> None: ...

    @asynccontextmanager
    async def watching(self, on_end: Any) -> AsyncIterator[None]:
        self.watched += 1
        yield
        self.watched -= 1


async def test_a_process_without_the_lease_watches_and_answers_and_ends_both(pki: Path) -> None:
    work: Any = WatchingWork(Stage())
    port = free_port()
    credentials = grpc.ssl_channel_credentials(
        *((pki / name).read_bytes() for name in ("ca.crt", "keda.key", "keda.crt"))
    )
    async with _external_scaler(Keda(f"localhost:{port}", "operator", port, pki), work, asyncio.Event()):
        assert work.watched == 1
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            assert await ask(channel, "IsActive") == TRUE
    assert work.watched == 0


async def test_a_process_that_is_stopped_before_its_caches_are_full_serves_nobody_and_ends(pki: Path) -> None:
    work: Any = WatchingWork(Stage())
    work.wait_synced = asyncio.Event().wait
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(5), _external_scaler(Keda("a:1", "operator", 1, pki), work, stop):
        pass
    assert work.watched == 0


def test_the_scaler_is_never_served_without_certificates(
    pki: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse([]).keda is None
    found = parse(["--keda-address", "operator:8083", "--keda-tls", str(pki)]).keda
    assert found == Keda("operator:8083", "llmendpoint-operator", 8083, pki)
    for wrong, part in ([], "a certificate alone"), (["--keda-tls", str(tmp_path)], "has no tls.crt"):
        with pytest.raises(SystemExit):
            parse(["--keda-address", "operator:8083", *wrong])
        assert part in capsys.readouterr().err
