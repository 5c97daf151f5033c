"""Text to tokens and back with the model's own tokenizer.json, and its chat template.

Uses `tokenizers` and jinja2 only: transformers would cost 694 MB and 5 s in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from llmendpoint_server.api.chat_options import PLAIN_CHAT, ChatOptions, Messages, TooSlow
from llmendpoint_server.api.detokenize import NO_PLAIN
from llmendpoint_server.api.plain_tokens import PlainTokens, joins_texts
from llmendpoint_server.api.template_style import find_style
from llmendpoint_server.api.templates import ChatTemplate, TemplateRefusal
from llmendpoint_server.api.token_texts import TokenTexts
from llmendpoint_server.api.tools.generic import with_tools_as_text
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.errors import InvalidRequest, ModelNotFound
from llmendpoint_server.limits import RENDER_SECONDS_MAX

TOKENS_REMEMBERED = 2**16
SPECIAL_TOKENS = (
    "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token",
)  # fmt: skip
WITH_TOOLS = "tool_use"
"""The name of a template for requests with tools, if the model has several."""


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
            special = _special_tokens(config)
            self._templates = {
                name: _Template(ChatTemplate(source, special))
                for name, source in _find_templates(folder, config).items()
            }
        except (TemplateError, ValueError) as error:
            raise ModelNotFound(f"The tokenizer files in {folder} cannot be used: {error}") from error
        except Exception as error:  # any: tokenizers raises bare Exception; the model is refused
            raise ModelNotFound(f"{folder}/tokenizer.json cannot be read: {error}") from error
        # A streamed token is decoded by itself and with the token before it. The first of the two is remembered.
        self._decode_one = lru_cache(TOKENS_REMEMBERED)(
            lambda token: str(self._tokenizer.decode([token], skip_special_tokens=True))
        )
        self.plain = self._plain_tokens()
        added = self._tokenizer.get_added_tokens_decoder()
        self._keeping: dict[frozenset[str], Callable[[Sequence[int]], str]] = {}
        self._special_ids = {token.content: at for at, token in added.items() if token.special}
        self.token = TokenTexts(self._tokenizer).of

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

    def keeping(self, markers: frozenset[str]) -> Callable[[Sequence[int]], str]:
        if (decode := self._keeping.get(markers)) is None:
            decode = self._keeping[markers] = self._make_keeping(markers)  # a model has one set or two
        return decode

    def _make_keeping(self, markers: frozenset[str]) -> Callable[[Sequence[int]], str]:
        if not (kept := self._special_ids.keys() & markers):
            return self.decode
        dropped = frozenset(token for text, token in self._special_ids.items() if text not in kept)

        def decode(tokens: Sequence[int]) -> str:
            return self.decode([token for token in tokens if token not in dropped], skip_special_tokens=False)

        return decode

    def special_id(self, text: str) -> int | None:
        return self._special_ids.get(text)

    @property
    def template_text(self) -> str:
        """All of the model's chat templates: how they are written shows how its answers are."""
        return "\n".join(named.template.source for named in self._templates.values())

    @property
    def shows_tools(self) -> bool:
        """Whether a template of the model tells it of the functions that it may call."""
        return any(named.style.tools for named in self._templates.values())

    def names(self, tokens: Sequence[int]) -> list[str]:
        """Each token as the vocabulary has it; empty for one that it has not."""
        return [self._tokenizer.id_to_token(token) or "" for token in tokens]

    def render_chat(
        self, messages: Messages, options: ChatOptions = PLAIN_CHAT, seconds: float = RENDER_SECONDS_MAX
    ) -> str:
        if not self._templates:
            raise InvalidRequest(
                "This model has no chat template: send text to /v1/completions instead, or add a chat_template.jinja "
                "to the model.",
                param="messages",
            )
        name = WITH_TOOLS if options.tools and WITH_TOOLS in self._templates else "default"
        named = self._templates.get(name) or next(iter(self._templates.values()))
        try:
            return named.render(messages, options, seconds)
        except TooSlow:
            if seconds < RENDER_SECONDS_MAX:
                raise
            raise InvalidRequest(
                f"The model's chat template needs more than {seconds:g} s for these messages: send fewer.",
                param="messages",
            ) from None
        except TemplateRefusal as error:
            raise InvalidRequest(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error
        except Exception as error:  # any: whatever the template's own expressions raise; this request fails
            raise InvalidRequest(
                f"The model's chat template cannot render these messages: {error}", param="messages"
            ) from error


class _Template:
    """A template and its style."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.style = find_style(template)

    def render(self, messages: Messages, options: ChatOptions, seconds: float) -> str:
        style = self.style
        if not style.tools and options.tools:
            messages = with_tools_as_text(messages, options.tools, system=style.system)
            options = replace(options, tools=None)
        elif not style.calls:
            messages = with_tools_as_text(messages, None, system=style.system)
        return self.template.render(style.fit(messages), options, seconds)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Values are a string or, in files of older versions, a dictionary with the string under "content"."""
    special = {name: config.get(name) for name in SPECIAL_TOKENS}
    return {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in special.items()
        if value
    }


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


def _find_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name. Most models have one, `default`."""
    more = {
        path.stem: path.read_text(encoding="utf-8")
        for path in folder.glob("additional_chat_templates/*.jinja")
    }
    if (file := folder / "chat_template.jinja").is_file():
        return {"default": file.read_text(encoding="utf-8")} | more
    template = config.get("chat_template")
    if isinstance(template, list):  # several templates with names
        return {item["name"]: item["template"] for item in template}
    return {"default": template} if template else {}
