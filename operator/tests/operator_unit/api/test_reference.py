"""docs/reference: every field has its place on the page of its kind, and every example is one that the models read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from llmendpoint_operator.api import LLMEndpointSpec, LLMKeySpec, LLMRuntimeSpec
from llmendpoint_operator.api.base import ApiModel
from llmendpoint_operator.api.crds import all_crds
from llmendpoint_operator.api.examples import EXAMPLES
from llmendpoint_operator.api.generate import render
from llmendpoint_operator.api.reference import reference_page

MODELS: dict[str, tuple[type[ApiModel], dict[str, Any]]] = {
    "LLMEndpoint": (LLMEndpointSpec, {"model": {"source": "embedded://demo"}}),
    "LLMRuntime": (LLMRuntimeSpec, {"image": "engine:1"}),
    "LLMKey": (LLMKeySpec, {"id": "4k2m9x0a7b3c5d8e", "hashes": [{"sha256": "0" * 64}]}),
}
"""With what a spec needs beside the example."""
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in all_crds().values()}
EACH = [(kind, path) for kind, examples in EXAMPLES.items() for path in examples]


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, sub in schema.get("properties", {}).items():
        below = f"{path}.{name}".removeprefix(".")
        yield below, sub
        yield from fields(sub.get("items", sub), below)


def pages() -> dict[str, str]:
    return {kind: render()[f"docs/reference/{kind.lower()}.md"] for kind in CRDS}


def anchors(page: str) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", page, re.M)
    slugs = [re.sub(r"[^a-z0-9_-]", "", heading.lower().replace(" ", "-")) for heading in headings]
    return slugs + re.findall(r'<a id="([^"]+)">', page)


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_has_an_anchor_of_its_own(kind: str) -> None:
    found = anchors(pages()[kind])
    parts = schema(kind)["properties"]
    wanted = [path for path, _ in fields(parts["spec"], "")]
    wanted += [path for path, _ in fields(parts.get("status", {}), "status")]
    assert [path for path in wanted if found.count(path.lower().replace(".", "")) != 1] == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_link_within_a_page_leads_to_an_anchor(kind: str) -> None:
    page = pages()[kind]
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert links
    assert set(links) <= set(anchors(page))


@pytest.mark.parametrize("kind", CRDS)
def test_every_top_level_field_has_an_example(kind: str) -> None:
    assert set(schema(kind)["properties"]["spec"]["properties"]) <= set(EXAMPLES[kind])


@pytest.mark.parametrize(("kind", "path"), EACH)
def test_an_example_is_read_whole_and_sets_the_field_that_it_is_for(kind: str, path: str) -> None:
    model, needed = MODELS[kind]
    example = yaml.safe_load(EXAMPLES[kind][path])
    read = model.model_validate({**needed, **example})
    dumped = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert {name: dumped[name] for name in example} == example
    shown = example
    for name in filter(None, path.split(".")):
        assert name in shown
        shown = shown[name]


@pytest.mark.parametrize("kind", CRDS)
def test_an_example_stands_on_the_page_once(kind: str) -> None:
    page = pages()[kind]
    for path, text in EXAMPLES[kind].items():
        shown = "".join(f"  {line}\n" for line in text.strip().splitlines())
        assert page.count(f"\nspec:\n{shown}```") == 1, path


@pytest.mark.parametrize("kind", CRDS)
def test_a_description_is_whole_sentences_without_pythons_words(kind: str) -> None:
    for path, sub in fields(schema(kind), ""):
        text = sub.get("description", "")
        if path in ("apiVersion", "kind", "metadata") or not text:
            continue
        assert text == " ".join(text.split()), path
        assert text[0].isupper() or text[0].isdigit() or text[0] in "`$", path
        assert text.endswith("."), path
        assert text.count("`") % 2 == 0, path
        assert not re.search(r"\bNone\b|\bTrue or False\b|\bAbsent:|\b[a-z]+_[a-z]+\b", text), path


def test_values_are_a_list_and_what_is_refused_is_told() -> None:
    crd: dict[str, Any] = {
        "spec": {
            "group": "example.io",
            "scope": "Cluster",
            "names": {"kind": "Thing", "singular": "thing"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {}}}],
        }
    }
    mode = {
        "type": "string",
        "enum": ["A", "B"],
        "default": "A",
        "description": "How. `A`: one way. With care. `B`: a|b of <c>.",
        "x-kubernetes-validations": [{"rule": "true", "message": "mode must be <A>"}],
    }
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "description": "A thing.",
        "properties": {
            "spec": {"description": "The spec.", "required": ["mode"], "properties": {"mode": mode}}
        },
    }
    page = reference_page(crd, {"mode": "mode: B\n"})
    assert "## `mode`\n\nType: one of `A`, `B`. Required.\n\nHow.\n\n- `A`: one way. With care.\n" in page
    assert "- `B`: a|b of &lt;c>.\n" in page
    assert "- mode must be &lt;A>\n" in page
    assert "```yaml\nspec:\n  mode: B\n```" in page
