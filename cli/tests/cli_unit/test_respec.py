"""docs/reference/cli.md: `rollout undo` writes the fields that the earlier revision was made from, and no others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_cli.core.respec import INPUTS, _filled, spec_patch
from tests.merge_patch import merged

SPEC: dict[str, Any] = {
    "model": {"source": "hf://acme/new", "cache": {"claimName": "models"}},
    "runtime": {"name": "llmendpoint", "args": ["--a"], "env": [{"name": "A", "value": "1"}]},
    "resources": {"accelerator": {"kind": "nvidia.com/gpu", "count": 2, "product": "l4"}},
    "replicas": 3,
    "progressDeadlineSeconds": 900,
    "rollout": {"promotion": "Manual"},
}


def test_only_what_differs_is_written_and_what_was_not_there_is_taken_away() -> None:
    then = {
        "model": {"source": "hf://acme/old", "servedNames": [], "cache": None},
        "runtime": {"name": "llmendpoint", "args": ["--a"], "env": []},
        "resources": {"accelerator": {"kind": "nvidia.com/gpu", "count": 1}, "tolerations": []},
        "progressDeadlineSeconds": 600,
    }
    assert spec_patch(SPEC, then) == {
        "model": {"source": "hf://acme/old", "cache": None},
        "runtime": {"env": None},
        "resources": {"accelerator": {"count": 1}},
    }


def test_a_spec_that_asks_for_it_already_is_left_alone() -> None:
    recorded = {field: SPEC[field] for field in INPUTS if field in SPEC}
    assert spec_patch(SPEC, {**recorded, "engine": {"dtype": None}, "replicas": 1}) == {}


VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.just([]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
SPECS = st.dictionaries(st.sampled_from([*INPUTS, "replicas"]), VALUES)


@given(SPECS, SPECS)
def test_the_patched_spec_has_the_recorded_inputs_and_the_rest_of_its_own(
    spec: dict[str, Any], then: dict[str, Any]
) -> None:
    after = merged(spec, spec_patch(spec, then))
    for field in INPUTS:
        assert _filled(after.get(field)) == _filled(then.get(field))
    assert after.get("replicas") == spec.get("replicas")


def test_what_an_accelerator_is_called_goes_with_its_kind() -> None:
    """Else the product of the one would be taken for that of the other."""
    now = {
        "model": {},
        "resources": {"accelerator": {"kind": "amd.com/gpu", "product": "mi300x", "memory": "192Gi"}},
    }
    then = {"model": {}, "resources": {"accelerator": {"kind": "nvidia.com/gpu"}}}
    assert spec_patch(now, then) == {
        "resources": {"accelerator": {"kind": "nvidia.com/gpu", "product": None, "memory": None}}
    }


def test_a_quantity_that_was_written_as_a_number_is_not_written_anew() -> None:
    """Whoever writes a field owns it: the next server-side apply by its owner would conflict. And a spec that is as it was
    is judged by no policy."""
    now = {"model": {}, "resources": {"cpu": 4, "memory": "16Gi"}, "terminationGracePeriodSeconds": 60}
    then = {"model": {}, "resources": {"cpu": "4", "memory": "16Gi"}, "terminationGracePeriodSeconds": 60}
    assert spec_patch(now, then) == {}
    assert spec_patch(now, {**then, "resources": {"cpu": "5"}}) == {"resources": {"cpu": "5", "memory": None}}
