"""This project's engine, without its API process."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from wire import Answering, Options, Prompts, Sampling, serve

from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.engine.bring_up import load
from llmendpoint_server.engine.loop import Engine, make_scheduler
from llmendpoint_server.protocol import Configure


def load_ours(options: Options) -> tuple[str, Answering]:
    torch.set_num_threads(options.threads)
    chosen: dict[str, Any] = {"quantization": options.weights} if options.weights else {}
    settings = Configure(
        options.model,
        dtype=options.dtype,  # type: ignore[arg-type]  # one of its names
        max_num_seqs=options.batch,
        kv_cache_memory=2**30,
        **chosen,
    )
    runner, info = load(settings)
    engine = Engine(runner, make_scheduler(settings, info))
    engine.warm_up(info.max_model_len)
    numbers = itertools.count()

    def answer(prompts: Prompts, sampling: Sampling) -> Prompts:
        wanted = SamplingParams(
            sampling.max_tokens, temperature=sampling.temperature, top_p=sampling.top_p, ignore_eos=True
        )
        answers: dict[str, list[int]] = {}
        for prompt in prompts:
            name = str(next(numbers))
            answers[name] = []
            engine.add(Request(name, tuple(prompt), wanted))
        while not engine.scheduler.idle:
            for output in engine.step():
                answers[output.id].extend(output.tokens)
        return list(answers.values())

    return f"llmendpoint, {options.weights or info.dtype}", answer


if __name__ == "__main__":
    serve(load_ours)
