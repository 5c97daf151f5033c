"""The flags for LoRA adapters, by vLLM's names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from llmendpoint_server import limits

DEFAULT_ADAPTERS, DEFAULT_RANK = 8, 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def adapter_fault(name: str, served: Sequence[str]) -> str | None:
    """Why an adapter cannot have this name; None if it can. `served`: the names of the model itself."""
    if len(name) > limits.ADAPTER_NAME_MAX or not NAME.fullmatch(name):
        return f"must be 1 to {limits.ADAPTER_NAME_MAX} letters, digits, '.', '_' and '-', and begin with a letter or a digit"
    if name in served:
        return "is a name of the model itself: an adapter needs another one"
    return None


def add_adapter_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--enable-lora", action="store_true", help="serve LoRA adapters of the model beside it (default: off)"
    )
    add("--max-loras", type=_within(limits.ADAPTERS_MAX), metavar="N",
        help=f"adapters in memory at once, and so in one batch, at most {limits.ADAPTERS_MAX} (default: {DEFAULT_ADAPTERS})")  # fmt: skip
    add("--max-lora-rank", type=_within(limits.ADAPTER_RANK_MAX), metavar="RANK",
        help=f"the largest rank that an adapter may have, at most {limits.ADAPTER_RANK_MAX}; each place takes memory for it (default: {DEFAULT_RANK})")  # fmt: skip
    add("--lora-modules", nargs="+", action="extend", type=_named, default=[], metavar="NAME=SOURCE",
        help="adapters to load at the start, each a folder, or hf://, s3://, pvc:// or file://, that peft has written")  # fmt: skip


def read_adapters(options: dict[str, Any], served: Sequence[str]) -> str | None:
    """Put the defaults in the place of flags that were not given. Returns what is wrong with the flags together; None if nothing is."""
    for flag, default in (("max_loras", DEFAULT_ADAPTERS), ("max_lora_rank", DEFAULT_RANK)):
        if options[flag] is None:
            options[flag] = default
        elif not options["enable_lora"]:
            return f"argument --{flag.replace('_', '-')}: it needs --enable-lora, without which no adapters are served"
    options["lora_modules"] = tuple(options["lora_modules"])
    return _check_modules(options["enable_lora"], options["lora_modules"], options["max_loras"], served)


def _check_modules(
    enabled: bool, modules: Sequence[tuple[str, str]], most: int, served: Sequence[str]
) -> str | None:
    names = [name for name, _ in modules]
    if modules and not enabled:
        return "argument --lora-modules: it needs --enable-lora"
    if len(names) > most:
        return f"argument --lora-modules: {len(names)} adapters, and --max-loras is {most}; raise that"
    for name in names:
        if fault := adapter_fault(name, served):
            return f"argument --lora-modules: the name {name!r} {fault}"
        if names.count(name) > 1:
            return f"argument --lora-modules: the name {name!r} is there twice"
    return None


def _named(text: str) -> tuple[str, str]:
    name, _, source = text.partition("=")
    if not name or not source or len(source) > limits.ADAPTER_SOURCE_MAX:
        raise argparse.ArgumentTypeError(
            f"{text[:100]!r} must be a name, '=' and a source of at most {limits.ADAPTER_SOURCE_MAX} characters"
        )
    return name, source


def _within(most: int) -> type[int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} must be a whole number from 1 to {most}")
        return int(text)

    return read  # type: ignore[return-value]  # argparse calls it as it would a type
