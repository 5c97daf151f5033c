"""The time between tokens (ITL) with a grammar beside free text, 8 answers at a time: `make bench-structured`.

One Llama of 134M random parameters, the shape of `make bench-engine`, with a tokenizer of 32,000 tokens that the benchmark trains on this
repository's own documentation. Random logits, so that answers are long and of all tokens that the grammar allows. Free text and the
grammars run in turn (A, B, C, D, A, …) in one process; figures are medians, ratios medians of the ratios within a turn. Answers that end
are asked for again, so that 8 run all the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.engine.machine import spin_briefly
from llmendpoint_server.protocol import Configure
from tests.bench.engine.shapes import LLAMA
from tests.bench.results import Result, write

AT_ONCE, STEPS = 8, 150
GOAL = "ratio <= 1.05"
END = 0
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 400},
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": 60},
            "minItems": 3,
            "maxItems": 20,
        },
        "scores": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 1000},
            "minItems": 5,
        },
        "state": {"enum": ["open", "closed", "merged"]},
    },
    "required": ["title", "tags", "scores", "state"],
    "additionalProperties": False,
}
GRAMMARS = {
    "a JSON schema": Grammar("json_schema", json.dumps(SCHEMA)),
    "any JSON object": Grammar("json_schema", '{"type": "object"}'),
    "a regular expression": Grammar("regex", r"(\d{4}-\d{2}-\d{2} (INFO|WARN) [a-z ]{10,60}\n){1,200}"),
}


def save_model(folder: Path) -> None:
    """Random parameters, and a byte-level tokenizer. The end of a sequence is token 0."""
    docs = [path.read_text() for path in Path(__file__).parents[2].joinpath("docs").rglob("*.md")]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LLAMA.vocab,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(docs, trainer)
    # The documentation does not hold so many words: the rest are made up.
    made.add_tokens([f" word{number}" for number in range(LLAMA.vocab - made.get_vocab_size())])
    made.save(str(folder / "tokenizer.json"))
    options = {key: value for key, value in LLAMA.config.items() if key != "model_type"}
    config = AutoConfig.for_model("llama", **options, eos_token_id=END, pad_token_id=None)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def itl(engine: Engine, grammar: Grammar | None, turn: int) -> float:
    """Median milliseconds of a step while 8 answers decode."""
    asked, times = 0, []
    for _ in range(STEPS):
        while engine.scheduler.running + engine.scheduler.waiting < AT_ONCE:
            sampling = SamplingParams(1000, seed=asked, ignore_eos=True, grammar=grammar)
            engine.add(Request(f"{turn}-{asked}", tuple(range(100, 132)), sampling))
            asked += 1
        began = time.perf_counter()
        outputs = engine.step()
        assert not any(output.detail for output in outputs), outputs
        if len(outputs) == AT_ONCE:
            times.append(1000 * (time.perf_counter() - began))
    for number in range(asked):
        engine.abort(f"{turn}-{number}")
    return statistics.median(times)


def measure(engine: Engine, rounds: int) -> list[Result]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in GRAMMARS}
    for turn in range(rounds + 1):
        free = itl(engine, None, turn)
        for name, grammar in GRAMMARS.items():
            with_grammar = itl(engine, grammar, turn)
            if turn:  # the first round is not measured
                found[name].append((with_grammar, free))
                print(f"  {name}: {with_grammar:.2f} ms, free text {free:.2f} ms", flush=True)
    return [
        Result(
            f"ITL p50 with {name}, {AT_ONCE} at a time",
            statistics.median(ours for ours, _ in pairs),
            "ms",
            f"free text: {statistics.median(free for _, free in pairs):.2f} ms",
            statistics.median(ours / free for ours, free in pairs),
            GOAL,
        )
        for name, pairs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spin_briefly()
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder))
        settings = Configure(folder, max_num_seqs=16, max_batched_tokens=512, kv_cache_memory=2**30)
        runner, info = load(settings)
        print(f"{info.architecture}, {info.dtype} on {info.device}", flush=True)
        write("structured", measure(Engine(runner, make_scheduler(settings, info)), rounds))


if __name__ == "__main__":
    main()
