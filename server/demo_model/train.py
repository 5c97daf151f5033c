"""Train `embedded://demo` from nothing: tokenizer, weights, and the files that a server loads.

    python server/demo_model/train.py                # writes into the package (about ten minutes on two cores)
    python server/demo_model/train.py --steps 50 --output /some/folder   # a quick look

The same seed, thread count and torch give the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from corpus import Document, Topic, draw_document, fill, read_other, read_topics
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

PACKAGE_FOLDER = Path(__file__).parents[1] / "src/llmendpoint_server/weights/embedded/demo"
VOCABULARY = 2048  # at most: the corpus yields fewer merges
ROW = 320  # tokens in a training row, into which whole documents are packed
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('the roles are system, user and assistant, not ' + message['role']) }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(topics: list[Topic], other: Topic) -> Tokenizer:
    """Byte-level BPE: any text can be written, and what is rare (emoji, other scripts) takes several tokens."""
    rng = random.Random(0)
    lines = [topic.answer for topic in topics] * 2 + [q for topic in topics for q in set(topic.questions)]
    lines += [fill(q, rng) for q in other.questions for _ in range(4)] + [other.answer]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(t, special=True, normalized=False) for t in (END_OF_TEXT, TURN_START, TURN_END)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=3, special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(sorted(lines), trainer)
    return tokenizer


def make_config(vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=True, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=2, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip


def encode(document: Document, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Token ids, and which of them are to be predicted: answers and plain text, not questions."""
    if not document.messages:
        ids = tokenizer.encode(document.text + END_OF_TEXT).ids
        return ids, [True] * len(ids)
    ids, learn = [], []
    for role, text in document.messages:
        head = tokenizer.encode(f"{TURN_START}{role}\n").ids
        body = tokenizer.encode(text + TURN_END).ids
        tail = tokenizer.encode("\n").ids
        ids += head + body + tail
        learn += [False] * len(head) + [role == "assistant"] * len(body) + [False] * len(tail)
    return ids, learn


def rows(tokenizer: Tokenizer, seed: int) -> Iterator[tuple[list[int], list[bool], list[int]]]:
    """Rows of ROW tokens with whole documents: ids, learn mask, document number (-1 is padding)."""
    topics, other, rng = read_topics(), read_other(), random.Random(seed)
    ids: list[int] = []
    learn: list[bool] = []
    owner: list[int] = []
    number = 0
    while True:
        more, mask = encode(draw_document(topics, other, rng), tokenizer)
        if len(more) > ROW:
            continue
        if len(ids) + len(more) > ROW:
            pad = ROW - len(ids)
            yield ids + [0] * pad, learn + [False] * pad, owner + [-1] * pad
            ids, learn, owner, number = [], [], [], 0
        ids, learn, owner, number = ids + more, learn + mask, owner + [number] * len(more), number + 1


def batch_of(
    source: Iterator[tuple[list[int], list[bool], list[int]]], size: int
) -> tuple[torch.Tensor, ...]:
    """ids [B, ROW], labels [B, ROW] (-100: not learned), mask [B, 1, ROW, ROW] (True: may attend)."""
    drawn = [next(source) for _ in range(size)]
    ids, learn, owner = (torch.tensor([row[i] for row in drawn]) for i in range(3))
    causal = torch.ones(ROW, ROW, dtype=torch.bool).tril()
    mask = (owner[:, :, None] == owner[:, None, :]) & causal
    return ids, ids.masked_fill(~learn, -100), mask[:, None]


def train(tokenizer: Tokenizer, steps: int, batch: int, peak: float, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(make_config(tokenizer.get_vocab_size()))
    model.config._attn_implementation = "sdpa"
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=steps, pct_start=0.08)
    source, started = rows(tokenizer, seed), time.monotonic()
    for step in range(1, steps + 1):
        ids, labels, mask = batch_of(source, batch)
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[:, :-1]
        wanted = labels[:, 1:]
        known = wanted != -100  # logits only where something is learned: half the time of a full row
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[known]), wanted[known])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == steps:
            spent = time.monotonic() - started
            print(
                f"step {step}/{steps} loss {loss.item():.4f} {spent:.0f} s, {spent / step * (steps - step):.0f} s left",
                flush=True,
            )
    return model.eval()


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # written for its owner only, but served by another user
    tokenizer.save(str(folder / "tokenizer.json"))
    write = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "clean_up_tokenization_spaces": False,
            "bos_token": None, "eos_token": TURN_END, "pad_token": END_OF_TEXT, "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"do_sample": False, "eos_token_id": [2, 0], "pad_token_id": 0},
    }  # fmt: skip
    for name, content in write.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def answer(model: LlamaForCausalLM, tokenizer: Tokenizer, question: str) -> str:
    ids = tokenizer.encode(f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n").ids
    output = model.generate(
        torch.tensor([ids]), max_new_tokens=400, do_sample=False, eos_token_id=[2, 0], pad_token_id=0
    )
    return str(tokenizer.decode(output[0, len(ids) :].tolist()))


def check(model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Print the answers that differ: every question as it is written in the file."""
    right = total = 0
    for topic in read_topics():
        for question in dict.fromkeys(topic.questions):
            got = answer(model, tokenizer, question)
            total, right = total + 1, right + (got == topic.answer)
            if got != topic.answer:
                print(f"  {question} -> {got[:90]}", flush=True)
    print(f"{right} of {total} questions answered as written", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=PACKAGE_FOLDER)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=12, help=f"rows of {ROW} tokens in a step")
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="ask every question afterwards")
    options = parser.parse_args()
    os.nice(10)
    torch.set_num_threads(options.threads)
    tokenizer = train_tokenizer(read_topics(), read_other())
    model = train(tokenizer, options.steps, options.batch, options.learning_rate, options.seed)
    save(model, tokenizer, options.output)
    print(f"written to {options.output}", flush=True)
    if options.check:
        check(model.float(), tokenizer)


if __name__ == "__main__":
    main()
