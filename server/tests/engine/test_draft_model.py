"""docs/concepts/speculation.md: a draft model changes no token, keeps no page, and is refused if its tokens are others."""

import gc
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.engine import bring_up, draft_model
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.draft_model import DraftModel, Follower
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import Configure
from server.tests.engine.test_speculation import Bench, generate, greedy, page_bytes, prompts

TEXTS = prompts((5, 1, 23, 40))


def drafting(bench: Bench) -> Engine:
    return bench.plain()  # its scheduler has the proposer that was loaded with the model


def drafts_of(bench: Bench) -> DraftModel:
    follower = bench.info.make_proposer()
    assert isinstance(follower, Follower)
    return follower._model


@pytest.mark.parametrize("guesser", ["llama", "qwen3", "mistral"])
def test_tokens_are_those_without_it_alone_and_together(
    guesser: str, model_folder: Callable[[str], Path]
) -> None:
    """The model itself guesses right, another one sometimes."""
    folder = model_folder("llama")
    expected = generate(Bench(folder, max_batched_tokens=40).plain(), TEXTS, greedy(4))
    bench = Bench(folder, max_batched_tokens=40, draft_model_path=str(model_folder(guesser)))
    engine = drafting(bench)
    counters = engine.scheduler.counters
    for text in TEXTS:
        assert generate(engine, [text], greedy(1)) == {text: expected[text]}
    assert generate(engine, TEXTS, greedy(4)) == expected
    if guesser == "llama":
        assert counters.accepted_tokens > 0.9 * counters.draft_tokens
        assert counters.steps < counters.generated_tokens / 2
    else:
        assert 0 < counters.accepted_tokens < 0.6 * counters.draft_tokens
    gc.collect()
    assert drafts_of(bench).blocks.held == 0


def test_sampled_tokens_with_penalties_stay_the_same_too(model_folder: Callable[[str], Path]) -> None:
    folder = model_folder("llama")
    asked = [
        SamplingParams(24, temperature=0.6, seed=n, ignore_eos=True, frequency_penalty=0.5 * (n % 2))
        for n in range(4)
    ]
    expected = generate(Bench(folder).plain(), TEXTS, asked)
    bench = Bench(folder, draft_model_path=str(folder))
    engine = drafting(bench)
    found = [generate(engine, [text], [one]) for text, one in zip(TEXTS, asked, strict=True)]
    assert [next(iter(one.values())) for one in found] == [expected[text] for text in TEXTS]
    counters = engine.scheduler.counters
    assert 0 < counters.accepted_tokens < counters.draft_tokens, "some guesses were right, and some were not"


def test_tokens_stay_when_sequences_are_preempted_found_in_the_cache_and_when_drafts_lose_their_pages(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_up, "SEQUENCES", 1)
    monkeypatch.setattr(draft_model, "PROMPT_TOKENS_AT_ONCE", 7)
    texts = prompts((15, 30, 14, 16, 13, 40, 12))
    folder = model_folder("llama")
    plain = Bench(folder, max_batched_tokens=19)
    expected = generate(plain.plain(), texts, greedy(7, 40))
    few = Bench(
        folder, max_batched_tokens=19, max_model_len=112, kv_cache_memory=8 * page_bytes(plain), max_num_seqs=3,
        draft_model_path=str(folder),
    )  # fmt: skip
    engine = drafting(few)
    assert generate(engine, texts, greedy(7, 40)) == expected
    for _ in range(2):
        assert generate(engine, texts[5:6], greedy(1, 40)) == {texts[5]: expected[texts[5]]}
    counters = engine.scheduler.counters
    assert counters.preemptions > 0
    assert counters.prefix_cache_hits > 0
    assert counters.accepted_tokens > 0
    gc.collect()
    assert drafts_of(few).blocks.held == 0


def test_what_was_computed_for_a_rejected_guess_is_computed_again(
    model_folder: Callable[[str], Path],
) -> None:
    bench = Bench(model_folder("llama"), draft_model_path=str(model_folder("llama")))
    follower = bench.info.make_proposer()
    known = list(TEXTS[3])
    for _ in range(6):
        draft = follower.propose(known, 5)
        assert draft == bench.info.make_proposer().propose(known, 5), "as one that begins anew"
        known += [*draft[:2], (draft[2] + 1) % 512, 9]  # two come true, the third does not


def test_one_that_lost_its_pages_to_another_guesses_as_before_and_each_page_is_released_once(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_up, "SEQUENCES", 1)
    bench = Bench(model_folder("llama"), draft_model_path=str(model_folder("llama")))
    followers = [bench.info.make_proposer() for _ in range(3)]
    for _ in range(2):
        drafts = [one.propose(list(TEXTS[3]) * 2, 5) for one in followers]
        assert len(set(drafts)) == 1
        assert drafts[0]
    blocks = drafts_of(bench).blocks
    assert blocks.held == 6  # 84 tokens of the last one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        followers.clear()
        gc.collect()
    assert blocks.held == 0
    assert sorted(blocks.allocate(blocks.pages)) == list(range(blocks.pages))


def test_a_sequence_that_is_longer_than_the_draft_models_has_no_guesses(
    model_folder: Callable[[str], Path],
) -> None:
    bench = Bench(model_folder("llama"), draft_model_path=str(model_folder("llama")))
    follower = bench.info.make_proposer()
    assert follower.propose([3] * 120, 5)
    assert follower.propose([3] * 126, 5) == ()


def test_its_tables_have_their_size_from_the_start(model_folder: Callable[[str], Path]) -> None:
    """Kernels for decodes are compiled for the width of the tables: on CUDA each width that comes later costs a second of all requests."""
    folder = model_folder("llama")
    bench = Bench(folder, draft_model_path=str(folder))
    engine = drafting(bench)
    inputs = drafts_of(bench).runner.backend._inputs  # type: ignore[attr-defined]  # of every backend
    before = inputs.tables.data_ptr(), inputs._numbers.tensor.data_ptr()
    generate(engine, prompts((5, 100)), greedy(2))
    assert engine.scheduler.counters.drafts
    assert (inputs.tables.data_ptr(), inputs._numbers.tensor.data_ptr()) == before


def test_another_vocabulary_or_tokenizer_is_refused_at_start(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def with_tokens(name: str, tokens: dict[str, int]) -> Path:
        folder = shutil.copytree(model_folder("llama"), tmp_path / name)
        whole = {"model": {"vocab": tokens}, "added_tokens": [{"content": "<end>", "id": 3}]}
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        return folder

    own, other = with_tokens("own", {"a": 0, "b": 1}), with_tokens("other", {"b": 0, "a": 1})
    same = shutil.copytree(own, tmp_path / "same")

    def start(draft: Path) -> Engine:
        configure = Configure(
            str(own), device="cpu", dtype="float32", max_model_len=64, draft_model_path=str(draft)
        )
        runner, info = load(configure)
        return Engine(runner, make_scheduler(configure, info))

    assert start(same).scheduler.config.num_speculative_tokens == 7
    with pytest.raises(BadConfiguration, match=r"its tokenizer.json has other tokens than the model's"):
        start(other)
    config = json.loads((same / "config.json").read_text())
    (same / "config.json").write_text(json.dumps({**config, "vocab_size": 500}))
    with pytest.raises(BadConfiguration, match=r"--draft-model .* has 500 tokens and the model's has 512"):
        start(same)


def test_its_pages_are_taken_from_the_memory_of_the_kv_cache(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Bench(model_folder("llama"))
    generate(plain.plain(), TEXTS[:1], greedy(1))
    free = 100 * page_bytes(plain)
    monkeypatch.setattr(bring_up, "_free_memory", lambda *_: free)
    bench = Bench(model_folder("llama"), max_num_seqs=64, draft_model_path=str(model_folder("llama")))
    drafts = drafts_of(bench).blocks.pages
    assert drafts == 12  # an eighth; and one more that no sequence has
    assert bench.info.kv_pages == 100 - drafts - 1
