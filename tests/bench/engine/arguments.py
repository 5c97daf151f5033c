"""Flags that hold several values: openvino,vllm or 1,8,64."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def one_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(name for name in text.split(",") if name)
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return chosen

    return parse


def numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and 1 <= int(part) <= 64 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers of 1 to 64, as in 1,8,64")
    return tuple(map(int, parts))
