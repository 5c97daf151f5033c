"""llama.cpp by its C interface: all sequences in one batch, as its own batched benchmark does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import llama_cpp as llama
import numpy as np
from wire import Answering, Options, Prompts, Sampling, serve

BATCH_TOKENS = 4096
SEQUENCE_TOKENS = 128


def load(options: Options) -> tuple[str, Answering]:
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(options.model.encode(), llama.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {options.model}")
    context = llama.llama_init_from_model(model, context_parameters(options))
    if not context:
        raise RuntimeError("llama.cpp made no context")
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    batch = llama.llama_batch_init(BATCH_TOKENS, 0, 1)
    decode = decoder(context, batch)

    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        llama.llama_memory_clear(llama.llama_get_memory(context), False)
        choose, free = chooser(context, vocabulary, sampling)
        last = decode(
            (token, position, number, position == len(prompt) - 1)
            for number, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        )
        answers = [[choose(row)] for row in last]
        for step in range(sampling.max_tokens - 1):
            rows = decode(
                (made[-1], len(prompts[number]) + step, number, True) for number, made in enumerate(answers)
            )
            for row, made in zip(rows, answers, strict=True):
                made.append(choose(row))
        free()
        return answers

    return f"llama.cpp (llama-cpp-python {llama.__version__}), bf16", answer


def context_parameters(options: Options) -> Any:
    parameters = llama.llama_context_default_params()
    parameters.n_seq_max = options.batch
    parameters.n_ctx = max(options.batch * SEQUENCE_TOKENS, 2048)
    parameters.kv_unified = True  # one prompt may be longer than a sequence's share
    parameters.n_batch, parameters.n_ubatch = BATCH_TOKENS, 512
    parameters.n_threads = parameters.n_threads_batch = options.threads
    parameters.no_perf = True
    return parameters


def decoder(context: Any, batch: Any) -> Callable[[Iterable[tuple[int, int, int, bool]]], list[int]]:
    def decode(rows: Iterable[tuple[int, int, int, bool]]) -> list[int]:
        """Computes (token, position, sequence, wanted) rows; the indices of those whose logits are wanted."""
        wanted, index = [], -1
        for index, (token, position, sequence, want) in enumerate(rows):
            batch.token[index], batch.pos[index], batch.logits[index] = token, position, want
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            if want:
                wanted.append(index)
        batch.n_tokens = index + 1
        if code := llama.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        return wanted

    return decode


def chooser(
    context: Any, vocabulary: int, sampling: Sampling
) -> tuple[Callable[[int], int], Callable[[], None]]:
    """The choice of a row's token, and what frees it."""
    if sampling.greedy:
        # numpy's argmax over the logits: llama.cpp's own greedy sampler first copies them into an array of structures.
        def greedy(row: int) -> int:
            logits = llama.llama_get_logits_ith(context, row)
            address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * vocabulary))
            return int(np.frombuffer(address.contents, dtype=np.float32).argmax())

        return greedy, lambda: None
    chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    for sampler in (
        llama.llama_sampler_init_top_p(sampling.top_p, 1),
        llama.llama_sampler_init_temp(sampling.temperature),
        llama.llama_sampler_init_dist(1),
    ):
        llama.llama_sampler_chain_add(chain, sampler)
    return lambda row: int(llama.llama_sampler_sample(chain, context, row)), lambda: llama.llama_sampler_free(
        chain
    )


if __name__ == "__main__":
    serve(load)
