"""The commands of `kubectl llm` as a page: what `--help` prints, from the program itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from llmendpoint_cli.__main__ import app
from tests.reference.pages import table

PROGRAM = "kubectl llm"
WITHOUT_CLUSTER = "kubectl llm plan"
HEADS = ("argument or option", "default", "meaning")
GOLDEN = Path(__file__).parents[2] / "cli" / "tests" / "cli_unit" / "golden"
Row = tuple[str, str, str]

_DEFAULT = re.compile(r"\s*\[default: (.+)\]$")


def commands() -> str:
    """The options that every command with a cluster has, then a section for each command."""
    found = list(leaves())
    shared = _shared(command for words, command in found if words != WITHOUT_CLUSTER)
    heads = (
        "## Options of every command\n",
        f"`{WITHOUT_CLUSTER}` has `--output` only, because it asks no cluster.\n",
    )
    return "\n".join([*heads, table(HEADS, shared), "", *(_section(*each, shared) for each in found)])


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    yield from _leaves(PROGRAM, typer.main.get_command(app))


def sample(name: str) -> str:
    """What the CLI's tests compare its output with."""
    return f"```\n{(GOLDEN / name.replace('_', '-')).with_suffix('.txt').read_text()}```"


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from _leaves(f"{words} {name}", inner)


def _shared(found: Iterable[Any]) -> list[Row]:
    """What all of them have in common, in the order of the first."""
    first, *others = ([_row(parameter) for parameter in command.params] for command in found)
    return [row for row in first if all(row in other for other in others)]


def _section(words: str, command: Any, shared: list[Row]) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([words, *(_metavar(p) for p in arguments)])
    codes, examples = _epilog(command.epilog or "")
    if not examples:
        raise ValueError(f"{words} has no example")
    rows = [row for parameter in command.params if (row := _row(parameter)) not in shared]
    parts = [
        f"## {usage}\n", f"{command.help}\n", *([f"{codes}\n"] if codes else []),
        *([table(HEADS, rows), ""] if rows else []), f"```\n{examples}\n```\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _row(parameter: Any) -> Row:
    if not parameter.help:
        raise ValueError(f"{parameter.name} has no help")
    text = re.sub(_DEFAULT, "", parameter.help)
    said = _DEFAULT.search(parameter.help)
    return _shown(parameter), said[1] if said else _own_default(parameter), text + _range(parameter)


def _shown(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter)}`"
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: not name.startswith("--"))
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _metavar(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return str(parameter.metavar or parameter.name.upper())


def _range(parameter: Any) -> str:
    low, high = parameter.min, parameter.max
    if high is not None:
        return f" {low:g} to {high:g}."
    return f" At least {low:g}." if low is not None and low >= 1 else ""


def _own_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = getattr(parameter.default, "value", parameter.default)
    if default is None or (default is False and not parameter.secondary_opts):
        return ""
    if parameter.is_flag:
        return f"`{(parameter.opts if default else parameter.secondary_opts)[0]}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _epilog(text: str) -> tuple[str, str]:
    """What stands before the examples, and the examples."""
    before, _, examples = text.partition("Examples:")
    lines = [line.removeprefix("  ") for line in examples.replace("\b", "").strip("\n").splitlines()]
    return before.strip(), "\n".join(lines).strip()
