"""docs/contribute/contracts.md: the engine process loads, answers, drains, and tells the cause and the exit code of its end.

The test is the API process at the other end of the socket.
"""

import gc
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from llmendpoint_server import protocol
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
from llmendpoint_server.engine import process
from llmendpoint_server.engine.connection import Connection
from server.tests.engine.engine_process import LIMIT_SECONDS, Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as started:
        yield started


def request(name: str, max_tokens: int = 5) -> protocol.AddRequest:
    return protocol.AddRequest(
        Request(name, (3, 4, 5), SamplingParams(max_tokens, temperature=0, ignore_eos=True))
    )


def test_a_process_loads_answers_aborts_refuses_poison_drains_and_goes_with_the_api_process(
    engine: Engine, model_folder: Callable[[str], Path]
) -> None:
    engine.send(protocol.Configure(model_path=str(model_folder("llama")), device="cpu"))
    assert isinstance(engine.next(), protocol.StateChanged)
    loaded = engine.until_ready()
    assert (loaded.architecture, loaded.vocab_size, loaded.max_model_len) == ("llama", 512, 512)
    assert loaded.quantization == "none"
    assert loaded.attention == ("gathered" if loaded.kernels == "none" else "inplace")

    engine.send(request("a"))
    outputs = engine.outputs("a")
    assert sum(len(output.tokens) for output in outputs) == 5
    assert outputs[-1].finish is FinishReason.LENGTH

    engine.send(request("b", max_tokens=500))
    assert engine.next() is not None
    engine.send(protocol.AbortRequest("b"))
    assert engine.outputs("b")[-1].finish is FinishReason.ABORTED

    wire = msgspec.to_builtins(request("poison"))
    wire["request"]["sampling"]["top_k"] = 2**63  # what no SamplingParams holds
    body = msgspec.msgpack.encode(wire)
    engine.socket.sendall(len(body).to_bytes(4, "big") + body)
    assert engine.outputs("poison")[-1].finish is FinishReason.FAILED

    engine.send(protocol.Drain(), request("c"))
    assert engine.outputs("c")[-1].finish is FinishReason.REJECTED
    assert engine.next() == protocol.StateChanged("draining", "idle")

    engine.socket.close()
    assert engine.process.wait(LIMIT_SECONDS) == 0


def test_a_model_that_is_not_there_is_told_and_ends_the_process_with_its_code(engine: Engine) -> None:
    engine.send(protocol.Configure(model_path="/no/such/model"))
    assert engine.next() == protocol.StateChanged("loading", "reading /no/such/model")
    message = engine.next()
    assert isinstance(message, protocol.StateChanged)
    assert (message.state, message.exit_code) == ("failed", 3)
    assert "/no/such/model" in message.detail
    assert engine.process.wait(LIMIT_SECONDS) == 3


@pytest.mark.parametrize(
    "error", [KeyError("weight"), ValueError("shape"), MemoryError("all of it")], ids=repr
)
def test_whatever_a_load_raises_is_told_as_the_cause(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(settings: protocol.Configure) -> None:
        raise error

    monkeypatch.setattr(process, "bring_up", load)
    api, ours = socket.socketpair()
    with api, ours:
        api.sendall(protocol.encode(protocol.Configure(model_path="m")))
        assert process.serve(Connection(ours)) == 1
        api.settimeout(LIMIT_SECONDS)
        *_, last = protocol.ApiReader().feed(api.recv(2**16))
    assert isinstance(last, protocol.StateChanged)
    assert (last.state, last.exit_code) == ("failed", 1)
    assert f"{type(error).__name__}: {error}" in last.detail


def test_while_it_serves_the_collector_visits_nothing_that_was_loaded(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def compute(*_: object) -> int:
        seen.append((gc.isenabled(), len(gc.get_objects())))
        return 0

    monkeypatch.setattr(process, "compute", compute)
    api, ours = socket.socketpair()
    gc.disable()
    try:
        with api, ours:
            api.sendall(protocol.encode(protocol.Configure(str(model_folder("llama")), device="cpu")))
            assert process.serve(Connection(ours)) == 0
    finally:
        gc.enable()
        gc.unfreeze()
    [(enabled, visited)] = seen
    assert enabled
    assert visited < 1000 < len(gc.get_objects())


def test_an_engine_that_fails_while_serving_tells_the_cause(
    engine: Engine, model_folder: Callable[[str], Path]
) -> None:
    settings = protocol.Configure(model_path=str(model_folder("llama")), device="cpu")
    engine.send(settings)
    engine.until_ready()
    engine.send(settings)
    message = engine.next()
    assert isinstance(message, protocol.StateChanged)
    assert (message.state, message.exit_code) == ("failed", 1)
    assert "ProtocolError: Configure came twice" in message.detail
    assert engine.process.wait(LIMIT_SECONDS) == 1


def test_a_process_whose_api_process_dies_while_it_starts_goes_too(engine: Engine) -> None:
    engine.socket.close()
    assert engine.process.wait(LIMIT_SECONDS) == 0
