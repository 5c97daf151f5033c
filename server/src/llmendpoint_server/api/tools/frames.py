"""The text around the calls of each form, for grammars: what a reader of the form takes, as the model was trained to write it."""

from __future__ import annotations

from dataclasses import dataclass, replace

NAME = "\ue002"
"""Stands for the function's name."""
COUNT = "\ue003"
"""Stands for a number."""
KEY = "\ue004"
"""Stands for a parameter's name."""
IS_TEXT = "\ue005"
"""Stands for whether a parameter's value is a string: true or false."""


@dataclass(frozen=True)
class Parameters:
    """Arguments that are no JSON object. `before`: what stands before a value, with its KEY, and perhaps with IS_TEXT; `after` it; `between` two of them. `keys`: what
    a key may look like. `quote`: around a string, which stands there as it is; None: strings are JSON. `python`: strings may stand
    between apostrophes, and words are Python's. `escapes`: the reader knows the escapes of JSON's strings."""

    before: str
    after: str = ""
    between: str = ""
    keys: str = r"[^<>\n=\"]{1,128}"
    quote: tuple[str, str] | None = ("", "")
    python: bool = False
    escapes: bool = True


@dataclass(frozen=True)
class Frame:
    """`before` and `after` the arguments of one call, `between` two calls (None: there is one only), `first` and `last` around
    all of them. `marker`: the text with which calls begin; empty: they are the whole answer. `parameters`: None: the arguments are a JSON
    object. `names`: what a function's name may look like."""

    before: str
    after: str
    between: str | None
    first: str = ""
    last: str = ""
    marker: str = ""
    parameters: Parameters | None = None
    names: str = r"[A-Za-z0-9_.\-]+"

    def behind_marker(self) -> Frame:
        """What follows the marker. Without something around all calls there is one."""
        if self.first:
            return replace(self, first=self.first.removeprefix(self.marker))
        return replace(self, before=self.before.removeprefix(self.marker), between=None)


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
QWEN_CODER = Frame(
    f"<tool_call>\n<function={NAME}>\n", "</function>\n</tool_call>", "\n", marker="<tool_call>",
    parameters=Parameters(f"<parameter={KEY}>\n", "\n</parameter>\n"),
)  # fmt: skip
GLM = Frame(
    f"<tool_call>{NAME}\n", "</tool_call>", "\n", marker="<tool_call>",
    parameters=Parameters(f"<arg_key>{KEY}</arg_key>\n<arg_value>", "</arg_value>\n"),
)  # fmt: skip
MINIMAX = Frame(
    f'<invoke name="{NAME}">\n', "</invoke>\n", "", "<minimax:tool_call>\n", "</minimax:tool_call>", "<minimax:tool_call>",
    Parameters(f'<parameter name="{KEY}">', "</parameter>\n"),
)  # fmt: skip
DEEPSEEK_TAGS = Frame(
    f'<｜DSML｜invoke name="{NAME}">\n', "</｜DSML｜invoke>\n", "",
    "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>", "<｜DSML｜function_calls>",
    Parameters(f'<｜DSML｜parameter name="{KEY}" string="{IS_TEXT}">', "</｜DSML｜parameter>\n"),
)  # fmt: skip
_GEMMA_KEY = r"[^,:{}\[\]<\"\s\x00-\x1f]{1,128}"
GEMMA = Frame(
    f"<|tool_call>call:{NAME}{{", "}<tool_call|>", "", marker="<|tool_call>",
    parameters=Parameters(f"{KEY}:", between=",", keys=_GEMMA_KEY, quote=('<|"|>', '<|"|>'), escapes=False),
)  # fmt: skip
FUNCTION_GEMMA = Frame(
    f"<start_function_call>call:{NAME}{{", "}<end_function_call>", "", marker="<start_function_call>",
    parameters=Parameters(f"{KEY}:", between=",", keys=_GEMMA_KEY, quote=("<escape>", "<escape>"), escapes=False),
)  # fmt: skip
_KEYWORDS = Parameters(f"{KEY}=", between=", ", keys=r"[A-Za-z_][A-Za-z0-9_]{0,127}", quote=None, python=True)
PYTHONIC = Frame(f"{NAME}(", ")", ", ", "[", "]", parameters=_KEYWORDS, names=r"[A-Za-z_][A-Za-z0-9_.\-]*")
PYTHONIC_MARKED = replace(
    PYTHONIC, first="<|python_start|>[", last="]<|python_end|>", marker="<|python_start|>"
)
