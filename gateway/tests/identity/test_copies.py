"""docs/concepts/identity.md, "What a key is": a copy of an LLMKey in another namespace lets nobody in, and keeps nobody out."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.tests.keys import CREATED, NOW, judged, key_text, keys, llm_key
from llmendpoint_gateway.core.identity.credentials import proof_of
from llmendpoint_gateway.core.identity.key_objects import MOST_HASHES, parse_key
from llmendpoint_gateway.core.identity.keys import MOST_NAMESPACES, Reason

TEXT = key_text()
PAST, FUTURE = "2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z"


def copy(
    body: Mapping[str, Any], name: str, namespace: str = "evil", created: str = CREATED
) -> dict[str, Any]:
    """What somebody makes who may read an LLMKey, and does not know the key."""
    return {**body, "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created}}


def test_a_hash_is_bound_to_the_namespace_of_its_llmkey_and_the_cli_makes_the_same() -> None:
    """cli/tests/cli_unit/test_keys.py has the same three literals: the two parts share no code."""
    text = "llm_4k2m9x0a7b3c5d8e_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    known = "7b8eee6988f35bb739e8fe30d409e56548d8e905faa9f6970fcfc46d880ace3c"
    assert proof_of(text.encode()).in_namespace("team-a").hex() == known
    spec = {"id": "4k2m9x0a7b3c5d8e", "hashes": [{"sha256": known}]}
    for namespace, judgement in (("team-a", "team-a/ci"), ("team-b", Reason.UNKNOWN)):
        assert judged(keys({**llm_key(text, namespace=namespace), "spec": spec}), text) == judgement


@pytest.mark.parametrize("created", [CREATED, "2000-01-01T00:00:00Z", FUTURE])
def test_a_copy_of_an_llmkey_in_another_namespace_lets_nobody_in_however_old_it_is(created: str) -> None:
    own = llm_key(TEXT)
    copies = [copy(own, f"copy{n}", created=created) for n in range(100)]
    assert judged(keys(*copies), TEXT) is Reason.UNKNOWN
    assert judged(keys(own, *copies), TEXT) == judged(keys(*copies, own), TEXT) == "team/ci"
    assert judged(keys(*copies, llm_key(TEXT, disabled=True)), TEXT) is Reason.DISABLED
    table = keys(own, *copies)
    table.drop("team/ci")
    assert judged(table, TEXT) is Reason.UNKNOWN


def test_so_many_namespaces_with_older_copies_do_not_keep_an_llmkey_from_being_found() -> None:
    own = llm_key(TEXT, created=FUTURE)
    copies = [copy(own, "copy", f"evil{n}", PAST) for n in range(MOST_NAMESPACES)]
    assert judged(keys(own, *copies[1:]), TEXT) == "team/ci"
    assert judged(keys(own, *copies), TEXT) is Reason.UNKNOWN, "documented: it lets nobody in"


def test_a_request_with_an_id_that_has_many_copies_costs_little() -> None:
    """Whoever sends it may have no key at all."""
    four = {"hashes": [{"sha256": f"{n}" * 64} for n in range(MOST_HASHES)]}
    table = keys(
        *(llm_key(TEXT, f"copy{n}", f"evil{m}", **four) for m in range(3 * MOST_NAMESPACES) for n in range(8))
    )
    proof, start = proof_of(TEXT.encode()), time.process_time()
    for _ in range(20):
        table.judge(proof, NOW)
    assert (time.process_time() - start) / 20 < 2e-3


def test_many_copies_of_an_llmkey_make_no_change_slow() -> None:
    """Reading them is a matter of milliseconds on the loop that decides on requests."""
    table = keys(*(llm_key(TEXT, f"copy{n:04}", "evil") for n in range(2000)))
    changes = [parse_key(llm_key(TEXT, f"copy{n:04}", "evil", disabled=True)) for n in range(50)]
    start = time.process_time()
    for change in changes:
        table.put(change)
    assert (time.process_time() - start) / len(changes) < 200e-6
