"""Text to tokens and back with the model's own tokenizer.json, and its chat template.

Uses `tokenizers` and jinja2 only: transformers would cost 694 MB and 5 s in this process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from llmendpoint_server.api.detokenize import NO_PLAIN
from llmendpoint_server.api.plain_tokens import PlainTokens, joins_texts
from llmendpoint_server.api.token_texts import TokenTexts
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.errors import InvalidRequest, ModelNotFound

TOKENS_REMEMBERED = 2**16
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class TemplateRefusal(TemplateError):
    """The template itself called raise_exception()."""


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a template. The arguments, and their order, are those of transformers."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class AnswerMarks(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the assistant says, for training. Here only the inside is kept."""

    tags = {"generation"}  # noqa: RUF012  # as its base has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Template:
    """Compile as transformers does. Sandboxed: a template comes with the weights, from a third party."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, AnswerMarks]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    # jinja's own tojson escapes for HTML, which the model would read as text.
    environment.filters["tojson"] = _to_json
    return environment.from_string(source)


class ModelTokenizer:
    """Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            # The file keeps the settings of the last training, which would silently cut or pad prompts.
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            # Older models name their special tokens only in a separate file.
            config = _read_json(folder / "special_tokens_map.json") | {
                name: value
                for name, value in _read_json(folder / "tokenizer_config.json").items()
                if value is not None
            }
            template = _find_template(folder, config)
            self._template = compile_template(template) if template else None
        except (TemplateError, ValueError) as error:
            raise ModelNotFound(f"The tokenizer files in {folder} cannot be used: {error}") from error
        except Exception as error:  # any: tokenizers raises bare Exception; the model is refused
            raise ModelNotFound(f"{folder}/tokenizer.json cannot be read: {error}") from error
        # A streamed token is decoded by itself and with the token before it. The first of the two is remembered.
        self._decode_one = lru_cache(TOKENS_REMEMBERED)(
            lambda token: str(self._tokenizer.decode([token], skip_special_tokens=True))
        )
        self.plain = self._plain_tokens()
        self.token = TokenTexts(self._tokenizer).of
        # Values are a string or, in files of older versions, a dictionary with the string under "content".
        special = {name: config.get(name) for name in SPECIAL_TOKENS}
        self._special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in special.items()
            if value
        }

    def _plain_tokens(self) -> Mapping[int, str]:
        decoder = self._tokenizer.decoder
        before = self._tokenizer.encode("a", add_special_tokens=False).ids
        if decoder is None or not before or not joins_texts(json.loads(decoder.__getstate__())):
            return NO_PLAIN
        return PlainTokens(self.decode, before[-1])

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        # `encode` would hold Python's lock, so that a long text would block the whole process.
        [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def encode_input(
        self, text: str, second: str | None = None, *, most: int | None = None, special: bool = True
    ) -> Input:
        texts = [text] if second is None else [text, second]
        parts = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        if most is not None:
            own = self._tokenizer.num_special_tokens_to_add(second is not None) if special else 0
            lengths = cut_lengths([len(part) for part in parts], most - own)
            for part, length in zip(parts, lengths, strict=True):
                part.truncate(length)
        pair = parts[1] if len(parts) > 1 else None
        whole = self._tokenizer.post_process(parts[0], pair, special)
        types = whole.type_ids
        return Input(tuple(whole.ids), types.index(1) if 1 in types else 0)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        if len(tokens) == 1 and skip_special_tokens:
            return self._decode_one(tokens[0])
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
        return text

    def full_text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, that of special ones included."""
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=False)
        return text

    def names(self, tokens: Sequence[int]) -> list[str]:
        """Each token as the vocabulary has it; empty for one that it has not."""
        return [self._tokenizer.id_to_token(token) or "" for token in tokens]

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The prompt's text. It ends where the assistant's answer begins, or without `add_generation_prompt` after the
        last message. Raises InvalidRequest."""
        if self._template is None:
            raise InvalidRequest(
                "This model has no chat template: send text to /v1/completions instead, or add a chat_template.jinja "
                "to the model.",
                param="messages",
            )
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self._special
            )
        except TemplateRefusal as error:
            raise InvalidRequest(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error
        except Exception as error:  # any: whatever the template's own expressions raise; this request fails
            raise InvalidRequest(
                f"The model's chat template cannot render these messages: {error}", param="messages"
            ) from error


def cut_lengths(lengths: Sequence[int], most: int) -> list[int]:
    """Of one text or two: the longer is cut, so that both together have at most `most`."""
    left = max(most, 0)
    if sum(lengths) <= left:
        return list(lengths)
    if len(lengths) == 1:
        return [left]
    first, second = lengths
    kept = min(first, max(left - second, left - left // 2))
    return [kept, left - kept]


def _read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return value


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several templates with names
        template = {item["name"]: item["template"] for item in template}.get("default")
    return template
