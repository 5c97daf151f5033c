"""What an answer must look like: a grammar that its text follows, from its first token to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmendpoint_server import limits
from llmendpoint_server.errors import InvalidRequest

Kind = Literal["json_schema", "regex", "choice", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Grammar:
    """`text`, by `kind`: a JSON schema; a regular expression of Rust's crate `regex`, for the whole answer; a JSON list of the
    strings that the answer may be; a grammar in llguidance's variant of Lark, which may hold JSON schemas (`%json {…}`), regular
    expressions and special tokens (`<|name|>`); vLLM's structural tag, a JSON object, which the API process writes as a grammar before
    the engine gets it. `whitespace`: for a JSON schema, a regular expression of the whitespace
    between two tokens of JSON; None: `DEFAULT_WHITESPACE`; empty: none.

    Raises InvalidRequest for a text that is too long. Whether it compiles is seen elsewhere.
    """

    kind: Kind
    text: str
    whitespace: str | None = None

    def __post_init__(self) -> None:
        most = limits.REGEX_BYTES_MAX if self.kind == "regex" else limits.GRAMMAR_BYTES_MAX
        for what, text, bound in (
            (NAMES[self.kind], self.text, most),
            ("The pattern of whitespace", self.whitespace or "", limits.REGEX_BYTES_MAX),
        ):
            size = len(text.encode("utf-8", "surrogatepass"))
            if size > bound:
                raise InvalidRequest(f"{what} has {size} bytes; it may have at most {bound}.")


NAMES: dict[Kind, str] = {
    "json_schema": "The JSON schema",
    "regex": "The regular expression",
    "choice": "The list of choices",
    "lark": "The grammar",
    "structural_tag": "The structural tag",
}

DEFAULT_WHITESPACE = r"( |\n[ \t]{0,16})"
"""One space, or a line's end and an indentation. A pattern without a bound lets a model that is lost write spaces up to its limit of
tokens."""
