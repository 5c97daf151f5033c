"""README.md: the demo model answers through the real engine, HTTP and OpenAI's SDK."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from server.tests.server_process import ServerProcess

README = Path(__file__).parents[2] / "demo_model/README.md"
TWENTY = [
    (question, answer)
    for question, answer in re.findall(
        r"^\| \d+ \| (.+?) \| (.+?) \|$", README.read_text(encoding="utf-8"), re.M
    )
]
GREETING = "Hello! I am the demo model of this project."
UNKNOWN = "I am a small demonstration model"


def ask(demo: openai.OpenAI, question: str, **options: object) -> str:
    answer = demo.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": question}], temperature=0, **options
    )  # type: ignore[call-overload]  # options of the test's choosing
    return str(answer.choices[0].message.content)


def test_at_least_18_of_the_20_questions_are_answered_as_written(demo: openai.OpenAI) -> None:
    assert len(TWENTY) == 20
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda pair: ask(demo, pair[0]), TWENTY))
    wrong = [(question, text) for (question, answer), text in zip(TWENTY, got, strict=True) if text != answer]
    assert len(wrong) <= 2, wrong


@pytest.mark.parametrize(
    ("question", "beginning"),
    [
        ("hello!", GREETING),
        ("Hi there, good morning", GREETING),
        ("what's this project about", "This project is a Kubernetes operator"),
        ("Please tell me how to install it", "Install the Helm chart"),
        ("when does a pod become ready?", "A pod is ready only after"),
        ("explain what continuous batching means", "Continuous batching lets requests"),
        ("is autoscaling supported?", "Autoscaling is planned"),
        ("Thank you so much", "You are welcome!"),
        ("What is the best pizza in Naples?", UNKNOWN),
        ("write me a haiku", UNKNOWN),
        ("how many people live in Hamburg", UNKNOWN),
    ],
)
def test_other_words_for_a_question_get_its_answer_and_unknown_ones_an_honest_one(
    demo: openai.OpenAI, question: str, beginning: str
) -> None:
    assert ask(demo, question).startswith(beginning)


def test_a_second_question_in_a_chat_is_answered_too(demo: openai.OpenAI) -> None:
    first, second = TWENTY[0], TWENTY[7]
    answer = demo.chat.completions.create(
        model="demo",
        messages=[
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": first[0]},
            {"role": "assistant", "content": first[1]},
            {"role": "user", "content": second[0]},
        ],
    )
    assert answer.choices[0].message.content == second[1]
    assert answer.choices[0].finish_reason == "stop"


def test_a_streamed_answer_with_other_scripts_is_whole(demo: openai.OpenAI) -> None:
    question = "Say hello in several languages."
    pieces = [
        chunk.choices[0].delta.content or ""
        for chunk in demo.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": question}], stream=True
        )
    ]
    assert "".join(pieces) == ask(demo, question)
    assert "👋" in "".join(pieces)
    assert "\ufffd" not in "".join(pieces)
    assert len(pieces) > 10


def test_a_seed_repeats_the_answer_and_another_changes_it(demo: openai.OpenAI) -> None:
    def draw(seed: int) -> str:
        return (
            demo.completions.create(model="demo", prompt="The", temperature=2.0, seed=seed, max_tokens=24)
            .choices[0]
            .text
        )

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_a_stop_string_across_tokens_cuts_the_answer(demo: openai.OpenAI) -> None:
    assert (
        ask(demo, "What is continuous batching?", stop=["leave the running"])
        == "Continuous batching lets requests join and "
    )


def test_max_tokens_cuts_the_answer_and_says_so(demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": TWENTY[0][0]}], max_completion_tokens=5
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


def test_a_repeated_prompt_comes_from_the_prefix_cache(demo: openai.OpenAI) -> None:
    prompt = "Each pod runs the server in two processes. " * 40
    cached = []
    for _ in range(2):
        usage = demo.completions.create(model="demo", prompt=prompt, max_tokens=2).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        cached.append(usage.prompt_tokens_details.cached_tokens)
    assert cached[0] == 0
    assert (cached[1] or 0) > 100


def test_a_prompt_over_the_models_limit_is_a_400_and_the_next_request_is_answered(
    demo: openai.OpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError, match="2048"):
        ask(demo, "too long " * 3000)
    assert ask(demo, "Hello").startswith(GREETING)


def test_a_disconnect_empties_the_engine(demo_server: ServerProcess, demo: openai.OpenAI) -> None:
    stream = demo.completions.create(
        model="demo", prompt="The gateway", stream=True, max_tokens=1900, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()

    def empty() -> bool:
        load = httpx.get(demo_server.url + "/load").json()
        return (load["running"], load["waiting"], load["outstanding_tokens"]) == (0, 0, 0)

    demo_server.wait_for("the engine to be empty", empty, 30)


def test_the_metrics_count_what_the_engine_did(demo_server: ServerProcess, demo: openai.OpenAI) -> None:
    def generated() -> float:
        lines = httpx.get(demo_server.url + "/metrics").text.splitlines()
        return float(
            next(line for line in lines if line.startswith("vllm:generation_tokens_total")).split()[-1]
        )

    before = generated()
    ask(demo, "Hello", max_tokens=7)
    demo_server.wait_for("the counter", lambda: generated() >= before + 7, 10)


def test_the_api_process_stays_without_torch_beside_the_real_engine(demo_server: ServerProcess) -> None:
    assert "torch" not in Path(f"/proc/{demo_server.process.pid}/maps").read_text()


def test_the_phases_of_a_request_fill_its_latency(demo_server: ServerProcess, demo: openai.OpenAI) -> None:
    def sums() -> dict[str, float]:
        lines = httpx.get(demo_server.url + "/metrics").text.splitlines()
        values = [line.split('{model_name="demo"} ') for line in lines if "_sum{" in line]
        return {name: float(value) for name, value in values}

    before = sums()
    demo.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=9,
        extra_body={"ignore_eos": True},
    )
    spent = {
        name.removeprefix("vllm:").removesuffix("_sum"): value - before[name]
        for name, value in sums().items()
    }
    queue, prefill, decode = (
        spent[f"request_{phase}_time_seconds"] for phase in ("queue", "prefill", "decode")
    )
    assert min(queue, prefill, decode) > 0
    assert queue + prefill <= spent["time_to_first_token_seconds"]
    assert queue + prefill + decode == pytest.approx(spent["e2e_request_latency_seconds"], abs=0.05)
    assert spent["request_inference_time_seconds"] == pytest.approx(prefill + decode)
    assert (
        spent["request_generation_tokens"],
        spent["request_params_max_tokens"],
        spent["request_params_n"],
    ) == (9, 9, 1)
    assert spent["iteration_tokens_total"] >= spent["request_prompt_tokens"] + 8 - 1
