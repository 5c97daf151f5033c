"""docs/concepts/architecture.md: the API process tokenizes by the model's own files, with templates as their authors write them."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.weights.locate import resolve_model

DEMO = resolve_model("embedded://demo")
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def test_a_prompt_is_neither_cut_nor_filled_up_as_training_once_asked_for(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>",
    }  # fmt: skip
    path.write_text(json.dumps(content))
    text = "What is continuous batching?"
    assert ModelTokenizer(folder).encode(text) == ModelTokenizer(DEMO).encode(text)


def test_a_template_that_marks_what_the_assistant_says_is_rendered_without_the_marks(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{% if message.role == 'user' %}Q: {{ message.content }}\n{% else %}"
        "{% generation %}{% set said = message.content %}A: {{ said }}\n{% endgeneration %}{% endif %}{% endfor %}A:"
    )
    messages = [*MESSAGES, {"role": "assistant", "content": "Hi"}, *MESSAGES]
    assert ModelTokenizer(folder).render_chat(messages) == "Q: Hello\nA: Hi\nQ: Hello\nA:"


def test_other_threads_go_on_while_a_long_text_is_tokenized() -> None:
    tokenizer = ModelTokenizer(DEMO)
    working = threading.Thread(target=tokenizer.encode, args=["one two three " * 100_000])
    working.start()
    turns = 0
    while working.is_alive():
        working.join(0.01)
        turns += 1
    assert turns > 5
