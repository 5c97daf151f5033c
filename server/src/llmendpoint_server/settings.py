"""The command line of `llmendpoint-server`, as docs/contribute/contracts.md describes it."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from llmendpoint_server import limits
from llmendpoint_server.adapter_flags import DEFAULT_ADAPTERS, DEFAULT_RANK, add_adapter_flags, read_adapters
from llmendpoint_server.core.drafting import DEFAULT_DRAFT_TOKENS, MOST_DRAFT_TOKENS

DESCRIPTION = "Serve a language model, or one that embeds or ranks, through OpenAI's HTTP API, with continuous batching."
EXAMPLES = """\
examples:
  llmendpoint-server --model embedded://demo
  llmendpoint-server --model /models/qwen3-8b --served-model-name qwen3 --max-model-len 16384
  llmendpoint-server --model file:///models/llama --device cuda --dtype bfloat16 --kv-cache-memory 24Gi

then:
  curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model": "demo", "messages": [{"role": "user", "content": "What is this project?"}]}'

exit codes: 0 after a drain (SIGTERM, SIGINT), 2 a bad flag, 3 the model cannot be found, 4 the architecture cannot be
served, 1 otherwise; the last line on standard error then names the cause.
"""
MOST = 2**31 - 1
"""Of tokens, sequences and requests: more than any machine has room for."""
MOST_RANKS = 64
UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}

TRACES_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
QUEUED_TOKENS_EACH = 4096
"""Tokens of waiting prompts, by default, for each request that may wait."""


@dataclass(frozen=True)
class Settings:
    """The chosen settings. None: the engine chooses. Memory in bytes, times in seconds, lengths in tokens."""

    model: str
    served_names: tuple[str, ...]
    host: str = "0.0.0.0"
    port: int = 8000
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: Literal["int8", "int4"] | None = None
    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    max_queued_requests: int = 256
    max_queued_tokens: int | None = None
    kv_cache_memory: int | None = None
    prefix_caching: bool = True
    speculative_method: Literal["ngram"] | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    drain_timeout: float = 600.0
    step_timeout: float = 120.0
    revision: str | None = None
    default_deadline_ms: int | None = None
    otlp_traces_endpoint: str | None = None
    trace_sampling: float = 1.0
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    enable_lora: bool = False
    max_loras: int = DEFAULT_ADAPTERS
    max_lora_rank: int = DEFAULT_RANK
    lora_modules: tuple[tuple[str, str], ...] = ()
    """name and source"""

    @property
    def queued_tokens(self) -> int:
        """Most tokens of the waiting prompts together."""
        return self.max_queued_tokens or QUEUED_TOKENS_EACH * self.max_queued_requests


def parse_quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity such as `2Gi`, `500M`, `1.5Gi` or `1073741824`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]i?|Ki|)", text.strip())
    if match is None or match.group(2) not in UNITS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an amount of memory; write it as 512Mi, 2Gi or in bytes"
        )
    amount = int(float(match.group(1)) * UNITS[match.group(2)])
    if amount <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory at all; write 512Mi, 2Gi or more")
    return amount


def positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text) or int(text) > MOST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be a whole number from 1 to {MOST}")
    return int(text)


def draft_tokens(text: str) -> int:
    count = positive(text)
    if count > MOST_DRAFT_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} must be at most {MOST_DRAFT_TOKENS}")
    return count


def ranks(text: str) -> int:
    count = positive(text)
    if count > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r} must be at most {MOST_RANKS}")
    return count


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds, 0 or more")
    return value


def deadline_ms(text: str) -> int:
    try:
        return limits.read_deadline_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def collector(text: str) -> str:
    try:
        url = urlsplit(text)
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in url.netloc:
        raise argparse.ArgumentTypeError(
            "it must be a URL such as http://collector:4318/v1/traces; credentials go into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return text


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be a share between 0 and 1, such as 0.1")
    return value


def some_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmendpoint-server", description=DESCRIPTION, epilog=EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_server_flags(parser)
    return parser


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that the operator gives to every engine of this project."""
    _add_model_flags(parser)
    _add_engine_flags(parser)
    _add_trace_flags(parser)
    _add_answer_flags(parser)
    add_adapter_flags(parser)
    add = parser.add_argument
    add("--host", default="0.0.0.0", help="address to listen on (default: all)")
    add("--port", type=int, default=8000,
        help="port to listen on; 0 takes a free one and logs it (default: 8000)")  # fmt: skip
    add("--drain-timeout", type=seconds, metavar="SECONDS", default=600.0,
        help="how long running requests may go on after SIGTERM (default: 600)")  # fmt: skip
    add("--step-timeout", type=some_seconds, metavar="SECONDS", default=120.0,
        help="how long one step of the engine may take; an engine that ends none in this time is stuck, and /health turns to 503 (default: 120)")  # fmt: skip


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True,
        help="embedded://demo, file:///path, a path to a folder in transformers' layout, or hf://org/name")  # fmt: skip
    add("--revision", metavar="COMMIT",
        help="of an hf:// model: which commit to load (default: the main branch's)")  # fmt: skip
    add("--served-model-name", action="append", default=[], metavar="NAME",
        help="a name that requests may put in `model`; repeat it for more; answers carry the first (default: the model's own)")  # fmt: skip


def _add_engine_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto",
        help="where to compute (default: auto, CUDA where there is one)")  # fmt: skip
    add("--quantization", choices=("int8", "int4"),
        help="keep the weights of linear layers in 8 or 4 bits: a half or a third of the memory, and faster where memory is the limit; on CPU only (default: as the model's files have them)")  # fmt: skip
    add("--kv-cache-dtype", choices=("auto", "int8", "fp8"), default="auto",
        help="keep the KV cache in 8 bits, with a scale for each token and head: twice the tokens in the same memory; on CPU only (default: auto, that of --dtype)")  # fmt: skip
    add("--tensor-parallel-size", type=ranks, metavar="N", default=1,
        help="divide the model over N accelerators of this machine, a process each: each has its share of the weights and of the heads, so N must divide the number of heads and of KV heads (default: 1)")  # fmt: skip
    add("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto",
        help="of weights and KV cache (default: auto)")  # fmt: skip
    add("--max-model-len", type=positive, metavar="TOKENS",
        help="prompt plus output of one request (default: the model's own)")  # fmt: skip
    add("--max-num-seqs", type=positive, metavar="N", help="sequences in one batch (default: on CPU 4 to 64, as many as are measured to pay at the start; otherwise 256)")  # fmt: skip
    add("--max-num-batched-tokens", dest="max_batched_tokens", type=positive, metavar="TOKENS",
        help="tokens that one step computes, at least --max-num-seqs; a longer prompt takes several steps. fewer: running answers pause less for it; more: it is done sooner (default: on CPU 128 to 2048, what is measured to take 0.2 s; otherwise 8192)")  # fmt: skip
    add("--max-queued-requests", type=positive, metavar="N", default=256,
        help="waiting requests before 429 (default: 256)")  # fmt: skip
    add("--max-queued-tokens", type=positive, metavar="TOKENS",
        help=f"tokens of all waiting prompts together before 429 (default: {QUEUED_TOKENS_EACH} for each of --max-queued-requests)")  # fmt: skip
    add("--default-deadline-ms", type=deadline_ms, metavar="MS",
        help=f"how long a request may wait before it runs, if it has no header {limits.DEADLINE_HEADER} (default: no limit)")  # fmt: skip
    add("--kv-cache-memory", type=parse_quantity, metavar="BYTES",
        help="as a Kubernetes quantity, such as 2Gi; with --tensor-parallel-size of each accelerator")  # fmt: skip
    add("--no-prefix-caching", dest="prefix_caching", action="store_false",
        help="never share pages between equal prompts")  # fmt: skip
    add("--speculative-method", choices=("ngram",),
        help="guess tokens ahead and check several in one step; ngram: guess that what followed the last few tokens before follows them again (default: off)")  # fmt: skip
    add("--draft-model", metavar="MODEL",
        help="a small model with the same tokenizer, which guesses tokens ahead; written like --model (default: off)")  # fmt: skip
    add("--num-speculative-tokens", type=draft_tokens, metavar="N",
        help=f"tokens that are guessed at a time with --speculative-method or --draft-model, at most {MOST_DRAFT_TOKENS} (default: {DEFAULT_DRAFT_TOKENS})")  # fmt: skip


def _add_trace_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--otlp-traces-endpoint", type=collector, metavar="URL", default=os.environ.get(TRACES_VARIABLE) or None,
        help=f"send a span for each request, with its queue, prefill and decode, to a collector by OTLP over HTTP, such as http://collector:4318/v1/traces (default: {TRACES_VARIABLE}, or none)")  # fmt: skip
    add("--trace-sampling", type=share, metavar="SHARE", default=1.0,
        help="of the requests without the header traceparent, whose sender decides otherwise (default: 1)")  # fmt: skip


def _add_answer_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tool-call-parser", choices=limits.TOOL_CALL_PARSERS, default="auto", metavar="NAME",
        help=f"how the model writes calls of functions: {', '.join(limits.TOOL_CALL_PARSERS)} (default: auto, as its chat template says)")  # fmt: skip
    add("--reasoning-parser", choices=limits.REASONING_PARSERS, default="auto", metavar="NAME",
        help=f"how the model writes its reasoning: {', '.join(limits.REASONING_PARSERS)} (default: auto, as its chat template says)")  # fmt: skip


def default_name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1] or model


def parse(arguments: Sequence[str]) -> Settings:
    """Settings from the command line; argparse prints what is wrong and raises SystemExit(2)."""
    parser = make_parser()
    return settings_from(vars(parser.parse_args(arguments)), parser)


def settings_from(options: dict[str, Any], parser: argparse.ArgumentParser) -> Settings:
    """Settings from what `parser` found for the server's own flags."""
    if not 0 <= options["port"] <= 65535:
        parser.error(f"argument --port: {options['port']} is not a port; it must be between 0 and 65535")
    sequences, tokens = options["max_num_seqs"], options["max_batched_tokens"]
    if sequences and tokens and tokens < sequences:
        parser.error(
            f"argument --max-num-batched-tokens: {tokens} is less than --max-num-seqs {sequences}, and each sequence "
            "computes at least one token in a step; raise the first or lower the second"
        )
    if options["draft_model"] and options["speculative_method"]:
        parser.error(
            "argument --draft-model: it guesses instead of --speculative-method; leave one of them out"
        )
    if options["num_speculative_tokens"] and not (options["speculative_method"] or options["draft_model"]):
        parser.error(
            "argument --num-speculative-tokens: it needs --speculative-method=ngram or --draft-model"
        )
    names = tuple(dict.fromkeys(options.pop("served_model_name"))) or (default_name(options["model"]),)
    if fault := read_adapters(options, names):
        parser.error(fault)
    return Settings(served_names=names, **options)
