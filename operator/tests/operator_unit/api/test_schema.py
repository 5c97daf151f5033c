"""docs/decisions/no-webhooks.md: the CRDs are generated from the models: current, structural, bounded and described."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from llmendpoint_operator.api.base import ApiModel
from llmendpoint_operator.api.generate import SIZE_LIMIT, main, render
from llmendpoint_operator.api.llmruntime import LLMRuntimeSpec
from llmendpoint_operator.api.schema import lint, structural_schema
from llmendpoint_operator.errors import SchemaError

ROOT = Path(__file__).parents[4]


def test_the_files_are_what_the_models_say() -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0


def test_check_fails_and_writes_nothing_when_a_file_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "run `make crds`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_each_definition_fits_into_an_annotation() -> None:
    sizes = {name: len(text.encode()) for name, text in render().items() if name.startswith("crds/")}
    assert len(sizes) == 3
    assert max(sizes.values()) < SIZE_LIMIT


def test_every_field_of_a_definition_is_described() -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if schema.get("description") or path.endswith("[]") else [path]
        for name, sub in schema.get("properties", {}).items():
            found += undescribed(sub, f"{path}.{name}")
        return found + (undescribed(schema["items"], f"{path}[]") if "items" in schema else [])

    for name, text in render().items():
        if name.startswith("crds/"):
            schema = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            assert [
                p
                for part in ("spec", "status")
                if part in schema["properties"]
                for p in undescribed(schema["properties"][part], part)
            ] == []


def test_the_bundled_runtime_is_one_that_the_model_reads() -> None:
    manifest = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())
    spec = LLMRuntimeSpec.model_validate(manifest["spec"])
    assert spec.model_dump(by_alias=True, exclude_defaults=True)["args"] == tuple(manifest["spec"]["args"])


class Inner(ApiModel):
    """Inner."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share."""


class Outer(ApiModel):
    """Outer."""

    inner: Inner = Inner()
    """Inner."""
    maybe: Inner | None = None
    """Maybe."""


def test_numeric_exclusive_bounds_become_booleans_and_defaults_reach_the_parents() -> None:
    schema = structural_schema(Outer)
    share = schema["properties"]["inner"]["properties"]["share"]
    assert (share["minimum"], share["exclusiveMinimum"], share["maximum"], share["exclusiveMaximum"]) == (
        0,
        True,
        1,
        True,
    )
    assert schema["properties"]["inner"]["default"] == {}
    assert "default" not in schema["properties"]["maybe"]
    assert lint(schema) == [".maybe: needs `default: {}`, or the defaults of share are never filled in"]


def test_a_union_is_refused() -> None:
    class Union(ApiModel):
        field: int | bool = 1

    with pytest.raises(SchemaError, match=r"Union\.field: a union of 2 types"):
        structural_schema(Union)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string"}, "a string needs maxLength"),
        ({"type": "array", "items": {"type": "integer"}}, "a list needs maxItems"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "a map needs maxProperties"),
        ({"type": "integer", "exclusiveMinimum": 0}, "exclusiveMinimum must be a boolean"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "anyOf is only taken for int-or-string"),
        ({"type": "object", "$ref": "#/$defs/X"}, r"$ref is not structural"),
    ],
)
def test_the_lint_finds_what_the_api_server_refuses(schema: dict[str, Any], message: str) -> None:
    assert any(message in problem for problem in lint(schema, "x"))


def test_no_package_shadows_the_standard_library() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
    assert not (ROOT / "tests/operator/__init__.py").exists()
