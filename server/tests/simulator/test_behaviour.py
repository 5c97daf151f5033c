"""docs/guides/rehearsal.md: what happens to the n-th request follows from the flags and the seed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.simulator import tokens
from llmendpoint_server.simulator.behaviour import Behaviour, Fate, answer_text, answer_tokens, fate, waits
from llmendpoint_server.simulator.settings import parse

NUMBERS = st.integers(1, 10_000)


@given(st.text())
def test_tokens_give_the_text_back(text: str) -> None:
    plain = text.encode(errors="replace").decode()
    ids = tokens.encode(plain)
    assert tokens.decode(ids) == plain
    assert len(ids) == math.ceil(len(plain.encode()) / 4)
    assert all(0 < token < tokens.VOCABULARY for token in ids)


@given(st.lists(st.integers(0, tokens.VOCABULARY - 1)))
def test_any_token_id_decodes_to_something(ids: list[int]) -> None:
    assert isinstance(tokens.decode(ids), str)


@given(st.integers(0, 5), NUMBERS)
def test_the_same_seed_gives_the_same_fate_and_times(seed: int, number: int) -> None:
    behaviour = Behaviour(error_rate=0.3, hang_rate=0.3, jitter=0.5, seed=seed)
    assert fate(behaviour, number) == fate(behaviour, number)
    assert waits(behaviour, number, 5) == waits(behaviour, number, 5)


def test_shares_of_errors_and_hangs_are_as_asked_for() -> None:
    behaviour = Behaviour(error_rate=0.1, hang_rate=0.05)
    fates = [fate(behaviour, number) for number in range(1, 4001)]
    assert fates.count(Fate.ERROR) / 4000 == pytest.approx(0.1, abs=0.02)
    assert fates.count(Fate.HANG) / 4000 == pytest.approx(0.05, abs=0.02)


@given(NUMBERS, NUMBERS)
def test_a_crash_comes_after_exactly_so_many_requests(after: int, number: int) -> None:
    assert (fate(Behaviour(crash_after=after), number) is Fate.CRASH) == (number > after)
    assert (fate(Behaviour(freeze_after=after), number) is Fate.FREEZE) == (number > after)
    assert (fate(Behaviour(hang_after=after), number) is Fate.HANG) == (number > after)


@given(NUMBERS, st.integers(1, 50), st.floats(0, 1))
def test_times_stay_within_the_jitter(number: int, count: int, jitter: float) -> None:
    found = waits(Behaviour(ttft=2.0, itl=0.5, jitter=jitter), number, count)
    assert len(found) == count
    for seconds, mean in zip(found, [2.0] + [0.5] * (count - 1), strict=True):
        assert (1 - jitter) * mean <= seconds <= (1 + jitter) * mean + 1e-9


def chat(*said: tuple[str, str]) -> str:
    return tokens.render_chat([{"role": role, "content": content} for role, content in said])


def test_an_answer_is_an_echo_of_the_last_user_message_unless_an_override_fits() -> None:
    behaviour = Behaviour(answers=(("France", "Paris"), ("", "I do not know.")))
    prompt = chat(
        ("system", "Be brief about France."), ("user", "Hello"), ("assistant", "Hi"), ("user", "Bye")
    )
    assert answer_text(Behaviour(), prompt) == "You said: Bye"
    assert answer_text(Behaviour(), "A plain prompt") == "You said: A plain prompt"
    assert answer_text(behaviour, chat(("user", "The capital of France?"))) == "Paris"
    assert answer_text(behaviour, prompt) == "I do not know."


@given(st.text(max_size=40), st.integers(1, 60), st.none() | st.integers(1, 60), st.booleans())
def test_an_answer_has_at_most_max_tokens_and_ends_by_itself_only_below_them(
    text: str, max_tokens: int, output_tokens: int | None, ignore_eos: bool
) -> None:
    behaviour = Behaviour(output_tokens=output_tokens)
    prompt = tokens.encode(text.encode(errors="replace").decode() or "x")
    found, ends = answer_tokens(behaviour, prompt, max_tokens, ignore_eos)
    assert 1 <= len(found) <= max_tokens
    assert ends == (found[-1] == tokens.END)
    if ignore_eos:
        assert (len(found), ends) == (max_tokens, False)
    elif output_tokens is not None:
        assert len(found) == min(output_tokens + 1, max_tokens)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--error-rate", "1.5"), "between 0 and 1"),
        (("--error-rate", "0.6", "--hang-rate", "0.6"), "together are above 1"),
        (("--answer", "no arrow"), "'=>'"),
        (("--crash-after", "-1"), "whole number of requests"),
        (("--load-error", "7"), "invalid choice"),
    ],
)
def test_a_flag_that_makes_no_sense_is_refused_by_name(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--model", "x", *flags])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_servers_flags_are_understood() -> None:
    settings, behaviour = parse(["--model=/m", "--served-model-name=a", "--max-num-seqs=3", "--dtype=bfloat16", "--itl=1"])  # fmt: skip
    assert (settings.served_names, settings.max_num_seqs, behaviour.itl) == (("a",), 3, 1.0)
