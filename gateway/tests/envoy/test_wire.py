"""docs/decisions/our-own-http2.md: frames, windows and messages are right however bytes are cut, also with grpc's own client."""

import asyncio
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.envoy.turns import AT_ONCE, Turns
from llmendpoint_gateway.core.envoy.wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_FRAME,
    PADDED,
    PING,
    PREFACE,
    PUSH_PROMISE,
    REFILL,
    RST_STREAM,
    SETTINGS,
    STREAM_WINDOW,
    WINDOW_UPDATE,
    Connection,
    Stream,
)
from llmendpoint_gateway.errors import WireError
from llmendpoint_gateway.serve.request.decisions import DecisionServer

REQUEST_HEADERS = b"\x83\x86\x44\x01/"  # never read, so anything


class Recorder:
    """Answers each message with itself, twice when it is `twice`, and with as many bytes as it names after `big `."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.over: list[int] = []

    def message(self, stream: Stream, message: bytes) -> None:
        self.seen.append((stream.id, message))
        word, _, count = message.partition(b" ")
        stream.send(b"x" * int(count) if word == b"big" else message)
        if message == b"twice":
            stream.send(message)

    def ended(self, stream: Stream) -> None:
        self.over.append(stream.id)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def grpc_message(text: bytes) -> bytes:
    return b"\0" + len(text).to_bytes(4, "big") + text


def request(stream: int, *texts: bytes, flags: int = 0) -> bytes:
    """A call that says these texts, each in a frame of its own."""
    data = b"".join(frame(DATA, 0, stream, grpc_message(text)) for text in texts)
    return frame(HEADERS, END_HEADERS | flags, stream, REQUEST_HEADERS) + data


def frames(output: bytes) -> list[tuple[int, int, int, bytes]]:
    found = []
    while output:
        size = int.from_bytes(output[:3], "big")
        found.append((output[3], output[4], int.from_bytes(output[5:9], "big"), output[9 : 9 + size]))
        output = output[9 + size :]
    return found


def connected() -> tuple[Connection, Recorder]:
    """After both sides' first words."""
    handler = Recorder()
    connection = Connection(handler)
    connection.receive(PREFACE + frame(SETTINGS, 0, 0))
    connection.take_output()
    return connection, handler


def sent_data(output: bytes, stream: int) -> bytes:
    return b"".join(
        payload for kind, _, number, payload in frames(output) if (kind, number) == (DATA, stream)
    )


def test_a_message_is_answered_after_headers_that_are_sent_once() -> None:
    connection, handler = connected()
    connection.receive(request(1, b"one", b"two"))
    kinds = [(kind, number) for kind, _, number, _ in frames(connection.take_output())]
    assert handler.seen == [(1, b"one"), (1, b"two")]
    assert kinds == [(HEADERS, 1), (DATA, 1), (DATA, 1)]


@given(st.data())
def test_bytes_may_come_cut_anywhere(data: st.DataObject) -> None:
    whole = PREFACE + frame(SETTINGS, 0, 0, b"\0\x04\0\0\x10\0")
    whole += request(1, b"one", b"", b"y" * 300) + request(3, b"two") + frame(RST_STREAM, 0, 1, b"\0\0\0\x08")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    handler = Recorder()
    connection = Connection(handler)
    output = connection.take_output()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        connection.receive(whole[start:end])
        output += connection.take_output()
    assert handler.seen == [(1, b"one"), (1, b""), (1, b"y" * 300), (3, b"two")]
    assert handler.over == [1]
    assert sent_data(output, 3) == grpc_message(b"two")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_a_message_may_come_in_many_frames_and_a_frame_may_hold_many_messages(sizes: list[int]) -> None:
    connection, handler = connected()
    connection.receive(frame(HEADERS, END_HEADERS, 1, REQUEST_HEADERS))
    text = grpc_message(b"first") + grpc_message(b"second") + grpc_message(b"third")
    at = 0
    for size in [*sizes, len(text)]:
        if part := text[at : at + size]:
            connection.receive(frame(DATA, PADDED, 1, b"\x02" + part + b"\0\0"))
        at += size
    assert [message for _, message in handler.seen] == [b"first", b"second", b"third"]


def test_a_stream_ends_once_however_it_ends() -> None:
    connection, handler = connected()
    connection.receive(request(1, b"a") + request(3, b"b") + request(5, b"c"))
    connection.take_output()
    connection.receive(frame(RST_STREAM, 0, 1, b"\0\0\0\x08") * 2 + frame(DATA, END_STREAM, 3))
    trailers = [
        (flags, number) for kind, flags, number, _ in frames(connection.take_output()) if kind == HEADERS
    ]
    connection.close()
    assert handler.over == [1, 3, 5]
    assert trailers == [(END_HEADERS | END_STREAM, 3)]
    assert connection.streams == 0


def test_what_is_sent_on_an_ended_stream_is_dropped() -> None:
    connection, _ = connected()
    connection.receive(request(1, b"a"))
    [stream] = connection._streams.values()
    connection.receive(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    connection.take_output()
    stream.send(b"late")
    connection.receive(frame(DATA, 0, 1, grpc_message(b"on its way")))
    assert connection.take_output() == b""


def test_a_reply_waits_for_the_window_and_others_pass_it() -> None:
    connection, _ = connected()
    connection.receive(frame(SETTINGS, 0, 0, b"\0\x04\0\0\0\x64"))  # 100 bytes for each stream
    connection.receive(request(1, b"big 150") + request(3, b"small"))
    output = connection.take_output()
    assert len(sent_data(output, 1)) == 100
    assert sent_data(output, 3) == grpc_message(b"small")
    connection.receive(frame(WINDOW_UPDATE, 0, 1, (1000).to_bytes(4, "big")))
    assert len(sent_data(connection.take_output(), 1)) == 55


def test_the_connections_window_holds_all_back_and_order_is_kept() -> None:
    connection, _ = connected()
    connection.receive(request(1, b"big 65000") + request(3, b"big 1000", b"after"))
    first = connection.take_output()
    assert len(sent_data(first, 1)) + len(sent_data(first, 3)) == 65_535
    assert all(len(payload) <= MAX_FRAME for _, _, _, payload in frames(first))
    connection.receive(frame(WINDOW_UPDATE, 0, 0, (10_000).to_bytes(4, "big")))
    rest = sent_data(first, 3) + sent_data(connection.take_output(), 3)
    assert rest == grpc_message(b"x" * 1000) + grpc_message(b"after")


def test_what_has_been_received_is_given_back_to_the_window() -> None:
    connection, _ = connected()
    connection.receive(request(1, b"a"))
    connection._unacknowledged = REFILL - 1
    connection.take_output()
    connection.receive(frame(DATA, 0, 1, grpc_message(b"b")))
    updates = [payload for kind, _, _, payload in frames(connection.take_output()) if kind == WINDOW_UPDATE]
    assert updates == [(REFILL - 1 + 6).to_bytes(4, "big")]


def test_pings_and_settings_are_acknowledged_and_goaway_ignored() -> None:
    connection, _ = connected()
    connection.receive(
        frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, b"87654321") + frame(GOAWAY, 0, 0, b"\0" * 8)
    )
    connection.receive(frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
    assert frames(connection.take_output()) == [(PING, ACK, 0, b"12345678"), (SETTINGS, ACK, 0, b"")]


def test_a_header_block_may_go_on_in_continuations() -> None:
    connection, handler = connected()
    connection.receive(frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, END_HEADERS, 1, b"\x86"))
    connection.receive(frame(DATA, 0, 1, grpc_message(b"a")))
    assert handler.seen == [(1, b"a")]


@pytest.mark.parametrize(
    "bad",
    [
        frame(HEADERS, END_HEADERS, 2),
        frame(DATA, 0, 1),
        request(3) + frame(RST_STREAM, 0, 3, b"\0\0\0\0") + request(3),
        frame(HEADERS, 0, 1) + frame(PING, 0, 0, b"12345678"),
        frame(CONTINUATION, END_HEADERS, 1),
        frame(PUSH_PROMISE, 0, 1),
        frame(SETTINGS, 0, 0, b"12345"),
        request(1) + frame(DATA, PADDED, 1, b"\x05abc"),
        request(1) + frame(DATA, 0, 1, b"\x01\0\0\0\x01a"),
        request(1) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"),
        b"\xff\xff\xff" + bytes(6),
    ],
    ids=["even stream", "data without stream", "stream used twice", "cut header block", "stray continuation", "push",
         "short settings", "padding", "compressed", "huge message", "huge frame"],
)  # fmt: skip
def test_a_broken_peer_is_an_error(bad: bytes) -> None:
    connection, _ = connected()
    with pytest.raises(WireError):
        connection.receive(bad)


def test_http_1_is_refused() -> None:
    with pytest.raises(WireError):
        Connection(Recorder()).receive(b"GET / HTTP/1.1\r\n")


def windows(output: bytes) -> dict[int, int]:
    """By stream: how many more bytes it may send."""
    found: dict[int, int] = {}
    for kind, _, number, payload in frames(output):
        if kind == WINDOW_UPDATE and number:
            found[number] = found.get(number, 0) + int.from_bytes(payload, "big")
    return found


def begin(connection: Connection, stream: int, size: int) -> None:
    """The first bytes of a message of this size."""
    first = grpc_message(b"y" * size)[:MAX_FRAME]
    connection.receive(frame(HEADERS, END_HEADERS, stream, REQUEST_HEADERS) + frame(DATA, 0, stream, first))


def test_large_messages_come_in_turns_and_small_ones_pass_them() -> None:
    """All at once they took as much memory as there were."""
    connection, handler = connected()
    size = 2 * AT_ONCE // 3
    for stream in (1, 3, 5):
        begin(connection, stream, size)
    assert set(windows(connection.take_output())) == {1}
    connection.receive(request(7, b"small"))
    assert handler.seen == [(7, b"small")]
    rest = size + 5 - MAX_FRAME
    whole = b"".join(frame(DATA, 0, 1, b"y" * min(MAX_FRAME, rest - at)) for at in range(0, rest, MAX_FRAME))
    connection.receive(whole)
    assert [number for number, _ in handler.seen] == [7, 1]
    assert set(windows(connection.take_output())) == {3}
    connection.receive(frame(RST_STREAM, 0, 5, b"\0\0\0\x08") + frame(RST_STREAM, 0, 3, b"\0\0\0\x08"))
    begin(connection, 9, size)
    assert set(windows(connection.take_output())) == {9}


def test_a_connection_that_goes_gives_its_turn_to_another() -> None:
    turns = Turns()
    first, second = (Connection(Recorder(), turns=turns) for _ in range(2))
    woken: list[int] = []
    second = Connection(Recorder(), wake=lambda: woken.append(1), turns=turns)
    for connection in (first, second):
        connection.receive(PREFACE + frame(SETTINGS, 0, 0))
        begin(connection, 1, AT_ONCE)
    assert set(windows(first.take_output())) == {1}
    assert windows(second.take_output()) == {}
    first.close()
    assert woken == [1]
    assert set(windows(second.take_output())) == {1}


def test_a_peer_that_sends_more_than_it_may_is_an_error() -> None:
    connection, _ = connected()
    begin(connection, 1, AT_ONCE)
    begin(connection, 3, AT_ONCE)
    too_much = frame(DATA, 0, 3, b"y" * MAX_FRAME) * (STREAM_WINDOW // MAX_FRAME + 1)
    with pytest.raises(WireError, match="window"):
        connection.receive(too_much)


def test_a_stream_of_many_small_messages_never_runs_dry() -> None:
    connection, handler = connected()
    connection.receive(frame(HEADERS, END_HEADERS, 1, REQUEST_HEADERS))
    credit = STREAM_WINDOW
    for _ in range(100):
        data = grpc_message(b"y" * 16_000)
        assert credit >= len(data)
        connection.receive(frame(DATA, 0, 1, data))
        credit += windows(connection.take_output()).get(1, 0) - len(data)
    assert len(handler.seen) == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=60))
def test_turns_are_given_in_order_within_the_bound_and_to_everybody_in_the_end(
    steps: list[tuple[bool, int]],
) -> None:
    turns, sizes = Turns(at_once=50), {}
    went: list[int] = []
    over: set[int] = set()
    for number, (asks, size) in enumerate(steps):
        if asks:
            sizes[number] = size
            turns.ask(number, size, lambda number=number: went.append(number))
        elif under_way := [n for n in went if n not in over]:
            over.add(under_way[0])
            turns.done(under_way[0])
        under_way = [n for n in went if n not in over]
        assert turns.bytes == sum(sizes[n] for n in under_way)
        assert turns.bytes <= 50 or len(under_way) == 1
    while under_way := [n for n in went if n not in over]:
        over.add(under_way[0])
        turns.done(under_way[0])
    assert went == list(sizes)


async def test_grpcs_own_client_is_understood(tmp_path: Path) -> None:
    handler = Recorder()
    server = DecisionServer(tmp_path / "decisions.sock", handler)
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/decisions.sock") as channel:
        method = channel.stream_stream("/any.Service/Method")

        async def talk(text: bytes) -> list[bytes]:
            call = method()
            answers = []
            for message in (text, b"y" * 200_000):
                await call.write(message)
                answers.append(await call.read())
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() == grpc.StatusCode.OK
            return answers

        found = await asyncio.gather(*(talk(b"%d" % n) for n in range(50)))
        assert found == [[b"%d" % n, b"y" * 200_000] for n in range(50)]
        cancelled = method()
        await cancelled.write(b"hold")
        await cancelled.read()
        cancelled.cancel()
        async with asyncio.timeout(10):
            while len(handler.over) < 51:  # noqa: ASYNC110 (the handler is told by callbacks)
                await asyncio.sleep(0.01)
    server.stop()
