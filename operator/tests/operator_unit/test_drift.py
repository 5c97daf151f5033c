"""What counts as a difference between wanted and live."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.drift import first_difference, quantity


@pytest.mark.parametrize(
    ("wanted", "live", "path"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"a": {"b": 1}}, {"a": {}}, "a.b"),
        ({"a": {}}, {}, "a"),
        ({"a": True}, {"a": 1}, "a"),
        ({"args": ["x", "y"]}, {"args": ["x", "y"]}, None),
        ({"args": ["x"]}, {"args": ["x", "y"]}, "args"),
        ({"args": []}, {}, None),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}, None),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, "env[name=A].value"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "1"}]}, "env[name=A]"),
        (
            {"ports": [{"port": 80, "name": "http"}]},
            {"ports": [{"port": 80, "name": "x"}]},
            "ports[port=80].name",
        ),
        ({"limits": {"cpu": "0.5", "memory": "1024Mi"}}, {"limits": {"cpu": "500m", "memory": "1Gi"}}, None),
        ({"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"nvidia.com/gpu": "2"}}, "limits.nvidia.com/gpu"),
        ({"value": "0.5"}, {"value": "500m"}, "value"),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}, None),
        ({"claim": {"readOnly": False}}, {"claim": {}}, None),
        ({"claim": {"readOnly": False}}, {"claim": {"readOnly": True}}, "claim.readOnly"),
    ],
)
def test_the_first_wanted_field_that_differs_is_named(wanted: Any, live: Any, path: str | None) -> None:
    assert first_difference(wanted, live) == path


def test_an_absent_object_differs() -> None:
    assert first_difference({"a": 1}, None) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab1m", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "limits"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_a_thing_does_not_differ_from_itself(thing: Any) -> None:
    assert first_difference({"x": thing}, {"x": thing}) is None


@given(
    st.dictionaries(st.sampled_from("abcd"), JSON.filter(lambda v: v == {} or bool(v)), min_size=1),
    st.data(),
)
def test_a_missing_field_is_found(wanted: dict[str, Any], data: st.DataObject) -> None:
    live = dict(wanted)
    gone = data.draw(st.sampled_from(sorted(live)))
    del live[gone]
    assert str(first_difference(wanted, live)).startswith(gone)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("500m", 0.5), ("2Gi", 2 * 2**30), ("1.5k", 1500), ("x", None), ("1Q", None)],
)
def test_quantities_are_read(text: str, number: float | None) -> None:
    found = quantity(text)
    assert (found if found is None else float(found)) == number
