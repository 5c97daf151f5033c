"""The text around the calls of each form, for grammars: what a reader of the form takes, as the model was trained to write it."""

from __future__ import annotations

from dataclasses import dataclass

NAME = "\ue002"
"""Stands for the function's name."""
COUNT = "\ue003"
"""Stands for a number."""


@dataclass(frozen=True)
class Frame:
    """`before` and `after` the arguments of one call, `between` two calls (None: there is one only), `first` and `last` around
    all of them. `marker`: the text with which calls begin; empty: they are the whole answer."""

    before: str
    after: str
    between: str | None
    first: str = ""
    last: str = ""
    marker: str = ""


_OBJECT = f'{{"name": "{NAME}", "arguments": '

HERMES = Frame(f"<tool_call>\n{_OBJECT}", "}\n</tool_call>", "\n", marker="<tool_call>")
GRANITE = Frame(_OBJECT, "}", ", ", "<|tool_call|>[", "]", "<|tool_call|>")
PHI = Frame(_OBJECT, "}", ", ", "<|tool_call|>[", "]<|/tool_call|>", "<|tool_call|>")
LLAMA = Frame(f'{{"name": "{NAME}", "parameters": ', "}", "; ")
MISTRAL = Frame(f"[TOOL_CALLS]{NAME}[ARGS]", "", "", marker="[TOOL_CALLS]")
MISTRAL_LIST = Frame(_OBJECT, "}", ", ", "[TOOL_CALLS][", "]", "[TOOL_CALLS]")
DEEPSEEK = Frame(
    f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>",
)  # fmt: skip
DEEPSEEK_FENCED = Frame(
    f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n", "\n```<｜tool▁call▁end｜>", "\n",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>",
)  # fmt: skip
KIMI = Frame(
    f"<|tool_call_begin|>functions.{NAME}:{COUNT}<|tool_call_argument_begin|>", "<|tool_call_end|>", "",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_calls_section_begin|>",
)  # fmt: skip
HARMONY = Frame(f"<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>", "", None)
