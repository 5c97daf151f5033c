"""docs/contribute/contracts.md: of a model's files the tokenizer, the chat template and the defaults of sampling are followed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import structlog

from llmendpoint_server.api.sampling_defaults import SamplingDefaults, read_sampling_defaults
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.errors import InvalidRequest, ModelNotFound
from llmendpoint_server.weights.locate import resolve_model

DEMO = resolve_model("embedded://demo")
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model with space"))


def test_a_broken_tokenizer_file_is_told_at_load(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        ModelTokenizer(model)


def test_the_chat_template_is_followed() -> None:
    assert (
        ModelTokenizer(DEMO).render_chat(MESSAGES)
        == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_file_wins_over_the_one_in_the_config(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    assert ModelTokenizer(model).render_chat(MESSAGES) == "Hi<|im_end|>"


def test_a_model_without_a_template_cannot_chat(model: Path) -> None:
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidRequest, match=r"no chat template.*v1/completions"):
        ModelTokenizer(model).render_chat(MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('alternate roles') }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 + 'a' }}",
        "{{ 1 / 0 }}",
        "{{ messages | tojson(indent=messages) }}",
    ],
)
def test_a_template_can_neither_break_out_nor_break_the_server(model: Path, template: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(InvalidRequest, match="chat template"):
        ModelTokenizer(model).render_chat(MESSAGES)


def test_sampling_defaults_come_from_the_model(model: Path) -> None:
    assert read_sampling_defaults(model) == SamplingDefaults(temperature=0.0)
    (model / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.6, "top_p": 0.9}')
    assert read_sampling_defaults(model) == SamplingDefaults(temperature=0.6, top_p=0.9)
    (model / "generation_config.json").unlink()
    assert read_sampling_defaults(model) == SamplingDefaults()


def test_all_that_changes_a_draw_comes_from_the_model_and_a_warning_names_what_the_sampler_lacks(
    model: Path,
) -> None:
    served = {"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
    config = {"do_sample": True, **served, "max_new_tokens": 512, "typical_p": 0.5, "num_beams": 4}
    (model / "generation_config.json").write_text(json.dumps(config))
    with structlog.testing.capture_logs() as lines:
        assert read_sampling_defaults(model) == SamplingDefaults(**served, max_tokens=512)  # type: ignore[arg-type]  # top_k is whole
    assert [(line["log_level"], line["field"]) for line in lines] == [
        ("warning", "typical_p"),
        ("warning", "num_beams"),
    ]


def test_a_greedy_model_keeps_its_repetition_penalty(model: Path) -> None:
    config = {"do_sample": False, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}
    (model / "generation_config.json").write_text(json.dumps(config))
    assert read_sampling_defaults(model) == SamplingDefaults(temperature=0.0, repetition_penalty=1.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 5), ("top_p", 2), ("top_k", 2**40), ("top_k", "many"), ("top_p", True)],
)
def test_a_default_that_no_request_could_ask_for_is_left_out_with_a_warning(
    model: Path, name: str, value: object
) -> None:
    (model / "generation_config.json").write_text(json.dumps({name: value}))
    with structlog.testing.capture_logs() as lines:
        assert read_sampling_defaults(model) == SamplingDefaults()
    assert [line["field"] for line in lines] == [name]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", '{"b": "é<", "a": 1}'),
        ("ensure_ascii=True", '{"b": "\\u00e9<", "a": 1}'),
        ("sort_keys=True", '{"a": 1, "b": "é<"}'),
        ("separators=(',', ':')", '{"b":"é<","a":1}'),
        ("indent=1", '{\n "b": "é<",\n "a": 1\n}'),
    ],
)
def test_tojson_takes_the_arguments_that_templates_give_it(model: Path, arguments: str, text: str) -> None:
    (model / "chat_template.jinja").write_text(f"{{{{ {{'b': 'é<', 'a': 1}} | tojson({arguments}) }}}}")
    assert ModelTokenizer(model).render_chat(MESSAGES) == text


def test_special_tokens_may_be_named_in_a_file_of_their_own(model: Path) -> None:
    path = model / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"eos_token": "<|im_end|>", "bos_token": None}
    path.write_text(json.dumps(config))
    special = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    (model / "special_tokens_map.json").write_text(json.dumps(special))
    (model / "chat_template.jinja").write_text("{{ bos_token }} {{ eos_token }}")
    assert ModelTokenizer(model).render_chat(MESSAGES) == "<s> <|im_end|>"
