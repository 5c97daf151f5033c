"""docs/reference/llmruntime.md: an engine's command line is the LLMRuntime's list of arguments with the endpoint's values filled in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api import Argument, ModelSpec, PodInputs
from llmendpoint_operator.core.pods.arguments import field_values, model_path, render_arguments
from llmendpoint_operator.errors import SpecError

ROOT = Path(__file__).parents[4]
INPUTS = PodInputs.model_validate(
    {
        "model": {"source": "embedded://demo", "servedNames": ["a", "b"]},
        "engine": {"maxNumSeqs": 4, "prefixCaching": False},
    }
)
FIELDS = field_values("team-a", "chat", INPUTS, 8000)


def render(value: str, when: str | None = None) -> list[str]:
    return render_arguments([Argument(value=value, when=when)], FIELDS)


@pytest.mark.parametrize(
    ("value", "when", "expected"),
    [
        ("--seqs=$(engine.maxNumSeqs)", None, ["--seqs=4"]),
        ("--name=$(model.servedNames)", None, ["--name=a", "--name=b", "--name=team-a/chat"]),
        ("$(namespace)/$(name):$(ports.http)", None, ["team-a/chat:8000"]),
        ("--prefix=$(engine.prefixCaching)", None, ["--prefix=false"]),
        ("--no-prefix", "!engine.prefixCaching", ["--no-prefix"]),
        ("--prefix", "engine.prefixCaching", []),
        ("--len=$(engine.maxModelLen)", "engine.maxModelLen", []),
        ("--any-len", "!engine.maxModelLen", ["--any-len"]),
        ("--drain=$(drainSeconds)", None, ["--drain=50"]),
        ("$PATH $(", None, ["$PATH $("]),
    ],
)
def test_an_argument_is_filled_in(value: str, when: str | None, expected: list[str]) -> None:
    assert render(value, when) == expected


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [({"kind": "nvidia.com/gpu", "count": 2}, ["--tensor-parallel-size=2"]), (None, [])],
    ids=["two accelerators", "none"],
)
def test_the_bundled_engine_divides_its_model_over_all_accelerators(
    accelerator: dict[str, object] | None, expected: list[str]
) -> None:
    inputs = PodInputs.model_validate(
        {"model": {"source": "embedded://demo"}, "resources": {"accelerator": accelerator}}
    )
    manifest = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())
    arguments = [Argument.model_validate(one) for one in manifest["spec"]["args"]]
    rendered = render_arguments(arguments, field_values("team-a", "chat", inputs, 8000))
    assert [one for one in rendered if "parallel" in one] == expected


def test_names_may_follow_one_flag_as_several_values() -> None:
    """As vLLM takes them: of a repeated flag it heeds only the last."""
    arguments = [Argument(value="--served-model-name"), Argument(value="$(model.servedNames)")]
    assert render_arguments(arguments, FIELDS) == ["--served-model-name", "a", "b", "team-a/chat"]


@pytest.mark.parametrize(
    ("value", "when", "message"),
    [
        (
            "--x=$(engine.nope)",
            None,
            r"spec\.args\[0\]\.value: 'engine\.nope' is not a field; known are accelerator",
        ),
        ("--x", "engine.nope", r"spec\.args\[0\]\.when: 'engine\.nope' is not a field"),
        (
            "--x=$(engine.maxModelLen)",
            None,
            r"does not set 'engine\.maxModelLen'; add `when: engine\.maxModelLen`",
        ),
    ],
)
def test_an_argument_that_cannot_be_filled_in_is_named(value: str, when: str | None, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        render(value, when)


@given(st.text(alphabet="abc$(){}-= ", max_size=30))
def test_text_without_a_field_is_passed_on_as_it_is(text: str) -> None:
    if text and "$(" not in text:
        assert render(text) == [text]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("embedded://demo", "embedded://demo"),
        ("file:///models/x", "file:///models/x"),
        ("pvc://claim/a/b", "/models/claim/a/b"),
        ("pvc://claim", "/models/claim"),
        ("pvc://claim/", "/models/claim"),
    ],
)
def test_a_claim_becomes_the_path_where_it_is_mounted(source: str, path: str) -> None:
    assert model_path(ModelSpec(source=source)) == path
