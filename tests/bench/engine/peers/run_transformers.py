"""transformers: `generate`, or its continuous batching."""

from __future__ import annotations

import logging

import torch
import transformers
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from wire import Answering, Options, Prompts, Sampling, serve


def load(options: Options) -> tuple[str, Answering]:
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=dtype, attn_implementation="sdpa"
    ).eval()
    name = f"transformers {transformers.__version__} {options.form}, {options.dtype}"
    if options.form == "generate":
        return name, generate(model)
    return name, continuous_batching(model, options.batch)


def generate(model: torch.nn.Module) -> Answering:
    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        ids = torch.tensor(prompts)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling.max_tokens,
            eos_token_id=None,
            pad_token_id=0,
            **drawing(sampling),
        )
        return out[:, ids.shape[1] :].tolist()

    return answer


def continuous_batching(model: torch.nn.Module, batch: int) -> Answering:
    # Room for every sequence of 128 tokens, and for one of 512: it never waits for memory. Left out, the most requests
    # at a time are what the first call brought: one.
    batching = ContinuousBatchingConfig(
        page_size=32, num_blocks=max(32, 6 * batch), max_batch_tokens=1024, max_requests_per_batch=batch
    )

    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        generation = GenerationConfig(
            max_new_tokens=sampling.max_tokens, eos_token_id=-1, pad_token_id=0, **drawing(sampling)
        )
        outputs = model.generate_batch(
            prompts,
            generation_config=generation,
            continuous_batching_config=batching,
            persistent_manager=True,
        )
        in_order = sorted(outputs.items(), key=lambda item: int(item[0].removeprefix("req_")))
        return [list(output.generated_tokens) for _, output in in_order]

    return answer


def drawing(sampling: Sampling) -> dict[str, object]:
    if sampling.greedy:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
    }


if __name__ == "__main__":
    serve(load)
