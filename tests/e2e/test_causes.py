"""docs/operate/troubleshooting.md: what cannot work says why in a condition, and goes away without a trace."""

from typing import Any

import pytest

from tests.e2e.product import NAMESPACE, Product

EVERYTHING = "pods,deployments,replicasets,services,endpointslices,serviceaccounts,controllerrevisions"


def spec(**changes: Any) -> dict[str, Any]:
    return {"model": {"source": "embedded://demo"}, "engine": {"device": "cpu"}, "replicas": 1, **changes}


@pytest.mark.parametrize(
    ("name", "changes", "reason", "said"),
    [
        (
            "no-image",
            {"runtime": {"image": "localhost/nobody/built-this:1"}},
            "ImagePullFailed",
            "localhost/nobody/built-this:1",
        ),
        (
            "no-accelerator",
            {"resources": {"accelerator": {"kind": "example.com/tpu", "count": 2}}},
            "NoAcceleratorAvailable",
            "no node has 2 free example.com/tpu",
        ),
        (
            "no-claim",
            {"model": {"source": "pvc://nobody-made-it/model"}},
            "ModelClaimNotFound",
            "nobody-made-it",
        ),
    ],
)
def test_a_pod_that_cannot_start_says_why(
    product: Product, name: str, changes: dict[str, Any], reason: str, said: str
) -> None:
    with product.temporary(name, spec(**changes)):
        condition = product.cluster.wait_for(
            f"{name} is Degraded",
            lambda: (c := product.condition(name, "Degraded"))["status"] == "True" and c,
            60,
        )
        assert condition["reason"] == reason
        assert said in condition["message"]
        assert product.condition(name, "Ready")["status"] == "False"


def test_a_model_that_does_not_exist_is_named_and_its_endpoint_leaves_nothing_behind(
    product: Product,
) -> None:
    """The engine starts, finds no model and ends, again and again."""
    name = "no-model"
    with product.temporary(name, spec(model={"source": "file:///nowhere"})):
        condition = product.cluster.wait_for(
            "the crash is explained",
            lambda: (c := product.condition(name, "Degraded"))["status"] == "True" and c,
            120,
        )
        assert condition["reason"] == "ModelNotFound"
        assert "/nowhere" in condition["message"]
        product.cluster.kubectl("delete", "llmendpoint", name, "-n", NAMESPACE)
        product.cluster.wait_for("nothing is left", lambda: product.children(name, EVERYTHING) == [], 90)
        product.cluster.wait_for(
            "the gateway forgets it",
            lambda: f"{NAMESPACE}/{name}" not in product.gateway_state()["endpoints"],
            30,
        )
