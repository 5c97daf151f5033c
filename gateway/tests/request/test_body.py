"""docs/concepts/gateway.md: `model` and `stream` of a JSON body are read and no more, once and in little memory, whatever it holds."""

import subprocess
import sys

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.request.body import MOST_MODEL_BYTES, scan
from llmendpoint_gateway.serve.request.reading import SMALL_BYTES, read_body

BODY_BYTES = 32 << 20


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        (b'{"model": "chat"}', "chat", False),
        (b' {"stream": true, "model": "a/b", "messages": []}', "a/b", True),
        (b'{"model": "chat", "stream": false}', "chat", False),
        (b'{"model": "chat", "stream": null}', "chat", False),
        (b'{"model": "chat", "stream": "true"}', "chat", False),
        (b'{"model": "one", "model": "two"}', "two", False),
        (b'{"mo\\u0064el": "ch\\u0061t"}', "chat", False),
        (b'{"messages": [{"model": "inner", "stream": true}], "model": "outer"}', "outer", False),
    ],
)
def test_the_fields_that_a_body_has_at_its_top_are_read(body: bytes, model: str, stream: bool) -> None:
    found = scan(body)
    assert (found.model, found.stream, found.problem, found.size) == (model, stream, "", len(body))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b"nonsense", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"model": "x"} x', "not valid JSON"),
        (b'{"model": "x", "a": NaN}', "not valid JSON"),
        (b'{"model": "\xff"}', "not valid JSON"),
        (b'{"messages": []}', "must provide a `model`"),
        (b'{"model": 3}', "must provide a `model`"),
        (b'{"model": null}', "must provide a `model`"),
        (b'{"model": ""}', "must provide a `model`"),
        (b'{"model": {"model": "x"}}', "must provide a `model`"),
        (b'{"model": "x", "a": ' + b"[" * 1_000_000, "nested too deeply"),
        (b'{"model": "' + b"x" * BODY_BYTES + b'"}', f"takes {MOST_MODEL_BYTES} at most"),
    ],
    ids=range(15),
)
def test_a_body_that_names_no_model_is_told_why_in_a_few_words(body: bytes, problem: str) -> None:
    found = scan(body)
    assert found.model == ""
    assert problem in found.problem
    assert len(found.problem) < 200


@given(st.binary(max_size=200))
def test_no_body_raises(body: bytes) -> None:
    assert scan(b'{"model":' + body).size == scan(body).size + 9


def test_equal_bodies_have_equal_prints_and_others_do_not() -> None:
    assert scan(b'{"model": "x"}').print_ == scan(memoryview(b'{"model": "x"}')).print_
    assert scan(b'{"model": "x"}').print_ != scan(b'{"model": "x" }').print_


def growth(body: str) -> int:
    """Bytes by which the most memory that a process ever had grows with the decision on a body of 32 MiB, which it
    already holds as the message that came."""
    program = f"""
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from llmendpoint_gateway.core.request.body import scan
from llmendpoint_gateway.serve.request.reading import SMALL_BYTES, read_body
message = pb.ProcessingRequest(request_body=pb.HttpBody(body={body}, end_of_stream=True)).SerializeToString()
peak = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1]) << 10
open('/proc/self/clear_refs', 'w').write('5')  # the peak begins anew
before = peak()
found = scan(read_body(message), prompted=True)
assert found.size > {BODY_BYTES // 2}, found
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    "body",
    [
        f"b'[' + b'{{}},' * ({BODY_BYTES} // 3) + b'1]'",
        f"b'{{\"model\":\"x\",\"a\":[' + b'{{}},' * ({BODY_BYTES} // 3) + b'1]}}'",
        f"b'{{\"model\":\"x\"' + b',\"a\":1' * ({BODY_BYTES} // 6) + b'}}'",
        f'b\'{{"model":"x","a":"\' + b\'x\' * {BODY_BYTES} + b\'"}}\'',
        f"b'{{\"model\":\"' + b'x' * {BODY_BYTES} + b'\"}}'",
        f'b\'{{"model":"x","messages":"\' + b\'x\' * {BODY_BYTES} + b\'"}}\'',
        f'b\'{{"model":"x","tools":[],"messages":"\' + b\'x\' * {BODY_BYTES} + b\'"}}\'',
    ],
    ids=["a list", "empty objects", "many keys", "one text", "a long name", "a prompt", "a prompt of parts"],
)
def test_a_body_of_32_mib_takes_next_to_no_memory_beside_itself(body: str) -> None:
    """A tree of 32 MiB of empty objects would take 0.9 GiB, and protobuf's copies two bodies more."""
    assert growth(body) < BODY_BYTES // 2


@given(st.binary(max_size=300), st.booleans(), st.sampled_from([1, SMALL_BYTES]))
def test_the_body_is_found_in_the_message_as_protobuf_finds_it(body: bytes, end: bool, times: int) -> None:
    body = body * times
    message = pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=end))
    message.metadata_context.filter_metadata["x"].fields["y"].string_value = "z"
    assert read_body(message.SerializeToString()) == body


@pytest.mark.parametrize("message", [b"\x22", b"\x22\xff\xff\xff\x7f", b"\x22\x05ab", b"\x07", b"\xff" * 12])
@pytest.mark.parametrize("before", [b"", b"\x2a\x80\x80\x08" + bytes(1 << 17)], ids=["small", "large"])
def test_a_message_that_is_cut_off_is_an_error_and_no_endless_loop(before: bytes, message: bytes) -> None:
    with pytest.raises((ValueError, DecodeError)):
        read_body(before + message)
