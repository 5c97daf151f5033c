"""docs/reference/llmkey.md: what a real API server takes and refuses of an LLMKey, and what kubectl shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from llmendpoint_gateway.core.identity.key_objects import parse_key
from llmendpoint_operator.api import API_VERSION
from tests.cluster import Cluster
from tests.cluster.errors import CommandFailed
from tests.integration.installed import install
from tests.integration.namespace import Namespace

pytestmark = pytest.mark.integration

KEY_ID, HASH, OTHER_HASH = "4k2m9x0a7b3c5d8e", "0" * 64, "1" * 64
KEY_TEXT = f"llm_{KEY_ID}_{'A' * 43}"


@pytest.fixture(scope="module")
def namespace(control_plane: Cluster) -> Iterator[Namespace]:
    install(control_plane)
    found = Namespace(control_plane)
    yield found
    control_plane.kubectl("delete", "namespace", found.name, "--wait=false")


def key(namespace: Namespace, name: str = "x", **spec: Any) -> dict[str, Any]:
    """A manifest; None leaves a field out."""
    whole = {"id": KEY_ID, "hashes": [{"sha256": HASH}], **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": "LLMKey",
        "metadata": {"name": name, "namespace": namespace.name},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }


def create(namespace: Namespace, manifest: dict[str, Any], *options: str) -> str:
    return namespace.cluster.kubectl("create", *options, "-f", "-", stdin=json.dumps(manifest))


def hashes(*values: Any) -> dict[str, Any]:
    return {"hashes": [{"sha256": value} for value in values]}


def grants(*values: Any) -> dict[str, Any]:
    return {"grants": list(values)}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"id": None}, "spec.id: Required value"),
        ({"id": KEY_ID[:-1]}, "spec.id must be the second part of the key, 16 characters of a-z and 0-9"),
        ({"id": KEY_ID.upper()}, "for example 4k2m9x0a7b3c5d8e"),
        ({"id": KEY_TEXT}, "spec.id must be the second part of the key"),
        ({"id": 7}, "spec.id in body must be of type string"),
        ({"hashes": None}, "spec.hashes: Required value"),
        ({"hashes": []}, "spec.hashes in body should have at least 1 items"),
        (hashes(*(str(n) * 64 for n in range(5))), "spec.hashes: Too many: 5: must have at most 4 items"),
        (hashes(HASH[:-1]), "sha256 must be a SHA-256, 64 characters of 0-9 and a-f"),
        (hashes(HASH + "0"), "sha256 must be a SHA-256"),
        (hashes("A" * 64), "sha256 must be a SHA-256"),
        (hashes("0" * 129), "spec.hashes[0].sha256: Too long: may not be more than 128 bytes"),
        (hashes(KEY_TEXT), "sha256 has a key itself. Whoever reads this manifest could use the key"),
        (hashes(HASH, HASH), "spec.hashes[1]: Duplicate value"),
        ({"hashes": [{"sha256": HASH, "expires": "soon"}]}, "spec.hashes[0].expires in body must be of type date-time"),
        ({"hashes": [{"sha256": HASH, "key": KEY_TEXT}]}, 'unknown field "spec.hashes[0].key"'),
        ({"expires": "30d"}, "spec.expires in body must be of type date-time"),
        ({"expires": "2027-01-01T00:00:00"}, "spec.expires in body must be of type date-time"),
        ({"expires": "2027-02-30T00:00:00Z"}, "spec.expires in body must be of type date-time"),
        ({"expires": "2027-01-01T00:00:00z"}, "spec.expires in body should match"),
        ({"expires": f"2027-01-01T00:00:00.{'1' * 20}Z"}, "spec.expires: Too long: may not be more than 40 bytes"),
        ({"disabled": "yes"}, "spec.disabled in body must be of type boolean"),
        ({"priority": "Urgent"}, 'supported values: "High", "Normal", "Low"'),
        (grants({"name": "a", "matchLabels": {"tier": "gold"}}), "at most one of name and matchLabels; write two grants"),
        (grants(*[{"name": "a"}] * 65), "spec.grants: Too many: 65: must have at most 64 items"),
        (grants({"name": "*"}), "For all endpoints of the namespace leave it out"),
        (grants({"name": "a" * 53}), "spec.grants[0].name: Too long: may not be more than 52 bytes"),
        (grants({"namespace": "*"}), "Write a grant for each namespace"),
        (grants({"namespace": ""}), "spec.grants[0].namespace in body should be at least 1 chars long"),
        (grants({"matchLabels": {}}), "spec.grants[0].matchLabels in body should have at least 1 properties"),
        (grants({"matchLabels": {f"l{n}": "" for n in range(17)}}), "must have at most 16 items"),
        (grants({"matchLabels": {"l" * 318: "a"}}), "the name of a label in matchLabels has 1 to 317 characters"),
        (grants({"matchLabels": {"tier": "a" * 64}}), "spec.grants[0].matchLabels.tier: Too long"),
        (grants({"endpoint": "chat"}), 'unknown field "spec.grants[0].endpoint"'),
        (grants("chat"), "spec.grants[0] in body must be of type object"),
        ({"grant": []}, 'unknown field "spec.grant"'),
    ],
)  # fmt: skip
def test_a_bad_key_is_refused_with_its_field(
    namespace: Namespace, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandFailed) as caught:
        create(namespace, key(namespace, **spec), "--dry-run=server")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"grants": []},
        grants({}),
        grants(*[{"namespace": "n" * 63, "name": "a" * 52}] * 64),
        grants({"namespace": "team-b", "matchLabels": {f"example.com/l{n}": "a" * 63 for n in range(16)}}),
        {**hashes(*(str(n) * 64 for n in range(4))), "expires": "2027-01-01T00:00:00Z", "priority": "High"},
        {"hashes": [{"sha256": HASH}, {"sha256": OTHER_HASH, "expires": "2026-12-01T12:00:00.5+02:00"}]},
        *({"expires": time} for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999999-12:00")),
    ],
)
def test_a_gateway_understands_every_key_that_the_api_server_takes(
    namespace: Namespace, spec: dict[str, Any]
) -> None:
    """Up to every bound. A key that it does not understand would let nobody in."""
    taken = json.loads(create(namespace, key(namespace, **spec), "--dry-run=server", "-o", "json"))
    read = parse_key(taken)
    assert len(read.hashes) == len(taken["spec"]["hashes"])
    assert len(read.grants) == len(spec.get("grants", []))
    assert (read.expires == inf) == ("expires" not in spec)
    assert not read.disabled


def test_the_id_of_a_key_cannot_change_and_the_rest_can(namespace: Namespace) -> None:
    def patch(spec: dict[str, Any]) -> None:
        namespace.cluster.kubectl(
            "patch", "llmkey", "kept", "-n", namespace.name, "--type=merge", "-p", json.dumps({"spec": spec})
        )

    create(namespace, key(namespace, "kept", **grants({"name": "chat"})))
    with pytest.raises(CommandFailed, match=r"spec\.id cannot change, because logs name the key by it"):
        patch({"id": KEY_ID[::-1]})
    patch({"disabled": True, "priority": "Low", **hashes(OTHER_HASH, HASH)})
    spec = namespace.get("llmkey", "kept")["spec"]
    assert spec == {
        "id": KEY_ID, "disabled": True, "priority": "Low", **hashes(OTHER_HASH, HASH), **grants({"name": "chat"})
    }  # fmt: skip


def test_a_key_gets_its_defaults(namespace: Namespace) -> None:
    create(namespace, key(namespace, "plain"))
    spec = namespace.get("llmkey", "plain")["spec"]
    assert (spec["disabled"], spec["priority"]) == (False, "Normal")
    assert "grants" not in spec, "a key without grants may use nothing"


def test_kubectl_explains_and_lists_keys(namespace: Namespace) -> None:
    create(namespace, key(namespace, "ci", expires="2027-01-01T00:00:00Z", **grants({"name": "chat"})))
    text = namespace.cluster.kubectl("explain", "llmkey.spec")
    assert "hashes\t<[]Object> -required-" in text
    assert "Without grants it may use none" in " ".join(text.split())
    grant = " ".join(namespace.cluster.kubectl("explain", "llmkey.spec.grants").split())
    assert "If not set, the key's own." in grant
    where = ("-n", namespace.name)
    header, row = namespace.cluster.kubectl("get", "llmkeys", "ci", *where).splitlines()
    assert header.split() == ["NAME", "ID", "EXPIRES", "DISABLED", "AGE"]
    assert row.split()[:4] == ["ci", KEY_ID, "2027-01-01T00:00:00Z", "false"]
    assert '[{"name":"chat"}]' in namespace.cluster.kubectl("get", "llmkey", "ci", "-o", "wide", *where)
