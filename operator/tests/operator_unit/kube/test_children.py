"""docs/contribute/contracts.md: an object that has a child's name and is not the endpoint's own is left, and its holder is named."""

from __future__ import annotations

from typing import Any, cast

import pytest

from llmendpoint_operator.core.endpoint.ownership import Holder
from llmendpoint_operator.errors import NotOwned
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.children import Children
from llmendpoint_operator.kube.client import KubeApi


class CachesWith:
    """Caches that hold one object. What asks them for more, or writes, fails."""

    def __init__(self, live: dict[str, Any]) -> None:
        self._live = live

    def get(self, resource: object, namespace: str, name: str) -> dict[str, Any]:
        return self._live


def service(uid: str) -> dict[str, Any]:
    owner = {"kind": "LLMEndpoint", "apiVersion": "llmendpoint.io/v1alpha1", "name": "chat", "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "team-a", "name": "chat", "ownerReferences": [owner]},
    }


@pytest.mark.parametrize(
    ("references", "holder"),
    [([], Holder.STRANGER), (service("of-the-one-before")["metadata"]["ownerReferences"], Holder.FORMER)],
)
async def test_what_is_not_ours_is_left_and_named_with_its_holder(
    references: list[dict[str, str]], holder: Holder
) -> None:
    live = {"metadata": {"namespace": "team-a", "name": "chat", "ownerReferences": references}}
    nobody = cast(KubeApi, None)
    with pytest.raises(NotOwned, match=r"^Service chat is not ours$") as caught:
        await Children(nobody, cast(Caches, CachesWith(live))).put(service("1"))
    assert (caught.value.kind, caught.value.name, caught.value.holder) == ("Service", "chat", holder)
