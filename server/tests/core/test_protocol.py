"""docs/concepts/architecture.md: the API process and the engine process exchange whole frames, however the stream is cut."""

import msgspec
import pytest

from llmendpoint_server import limits, protocol
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams, TokenLogprobs
from llmendpoint_server.errors import InvalidRequest, ProtocolError

REQUEST = Request(
    "r1",
    (1, 2, 3),
    SamplingParams(
        max_tokens=5, temperature=0.5, seed=-7, stop_token_ids=frozenset({9}), logit_bias=((3, -1.5),)
    ),
    1.5,
)
TO_ENGINE = [
    protocol.Configure(model_path="m", kv_cache_memory=2**33, dtype="float32"),
    protocol.AddRequest(REQUEST),
    protocol.AbortRequest("r1"),
    protocol.Drain(),
]
FROM_ENGINE = [
    protocol.StateChanged("failed", "No such folder: /m", exit_code=3),
    protocol.Loaded("llama", 512, 8, 64, 32000, (2,), "cpu", "float32", 100, 16, 1.5),
    protocol.StepOutput((protocol.RequestOutput("r1", (4, 5), FinishReason.STOP, cached_tokens=2),)),
    protocol.StepOutput(
        (protocol.RequestOutput("r2", (4,), logprobs=(TokenLogprobs(4, -0.5, ((4, -0.5),)),)),)
    ),
    protocol.StepOutput((protocol.RequestOutput("r3", prompt_logprobs=(None, TokenLogprobs(4, -0.5))),)),
    protocol.Stats(waiting=1, kv_usage=0.25),
]


def test_messages_arrive_as_they_were_sent_however_the_stream_is_cut() -> None:
    data = protocol.encode(*TO_ENGINE)
    for size in (1, 3, 7, len(data)):
        reader = protocol.EngineReader()
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        assert [message for piece in pieces for message in reader.feed(piece)] == TO_ENGINE


def test_a_reader_that_leaves_after_one_message_gets_the_next_ones_later() -> None:
    *most, last = TO_ENGINE
    reader = protocol.EngineReader()
    assert next(reader.feed(protocol.encode(*most))) == most[0]
    assert list(reader.feed(protocol.encode(last))) == TO_ENGINE[1:]


def test_what_the_engine_says_arrives_as_it_was_said() -> None:
    assert list(protocol.ApiReader().feed(protocol.encode(*FROM_ENGINE))) == FROM_ENGINE


def test_a_message_of_the_wrong_direction_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Not a message to the engine"):
        list(protocol.EngineReader().feed(protocol.encode(protocol.Stats())))


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="was announced"):
        list(protocol.ApiReader().feed(b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", 2.5),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("top_k", 2**31),
        ("top_k", 10**30),
        ("max_tokens", 2**31),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        ("logprobs", -1),
        ("logprobs", 21),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", float("nan")),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("presence_penalty", 2.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 11.0),
        ("min_tokens", -1),
        ("min_tokens", 6),
    ],
)
def test_a_sampling_parameter_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=str(value)) as caught:
        SamplingParams(**{"max_tokens": 5, field: value})  # type: ignore[arg-type]  # deliberately wrong
    assert caught.value.param == field


def test_more_stop_token_ids_than_allowed_are_refused_by_name() -> None:
    SamplingParams(5, stop_token_ids=frozenset(range(limits.STOP_TOKEN_IDS_MAX)))
    with pytest.raises(
        InvalidRequest, match=r"stop_token_ids holds 129 ids; it takes at most 128\."
    ) as caught:
        SamplingParams(5, stop_token_ids=frozenset(range(limits.STOP_TOKEN_IDS_MAX + 1)))
    assert caught.value.param == "stop_token_ids"


@pytest.mark.parametrize(
    ("bias", "why"),
    [
        (((7, 100.5),), r"logit_bias\[7\] is 100.5; it must be -100.0 to 100.0"),
        (((7, float("nan")),), "it must be -100.0 to 100.0"),
        (((7, 1.0), (7, 2.0)), "names a token twice"),
        (tuple((token, 1.0) for token in range(1025)), "holds 1025 tokens; it takes at most 1024"),
    ],
    ids=["value", "nan", "twice", "count"],
)
def test_a_logit_bias_out_of_its_bounds_is_refused_by_name(
    bias: tuple[tuple[int, float], ...], why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        SamplingParams(5, logit_bias=bias)
    assert caught.value.param == "logit_bias"


def test_a_cache_salt_beyond_its_limit_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="cache_salt has 257 characters") as caught:
        Request("r", (1,), SamplingParams(5), salt="x" * 257)
    assert caught.value.param == "cache_salt"


@pytest.mark.parametrize("n", [0, 129])
def test_a_number_of_answers_out_of_range_is_refused_by_name(n: int) -> None:
    with pytest.raises(InvalidRequest, match=f"n is {n}; it must be 1 to 128") as caught:
        Request("r", (1,), SamplingParams(5), n=n)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("top_k", 2**40, "top_k is 1099511627776"),
        ("top_k", "many", "Expected `int`"),
        ("stop_token_ids", list(range(200)), "stop_token_ids holds 200 ids"),
        ("temperature", float("nan"), "temperature is nan"),
    ],
)
def test_a_request_that_cannot_be_read_fails_alone_under_its_id(field: str, value: object, why: str) -> None:
    wire = msgspec.to_builtins(protocol.AddRequest(REQUEST))
    wire["request"]["sampling"][field] = value
    body = msgspec.msgpack.encode(wire)
    frame = len(body).to_bytes(4, "big") + body
    bad, good = protocol.EngineReader().feed(frame + protocol.encode(protocol.AbortRequest("r2")))
    assert isinstance(bad, protocol.UnreadableRequest)
    assert bad.id == "r1"
    assert why in bad.detail
    assert good == protocol.AbortRequest("r2")
