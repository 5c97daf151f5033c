"""docs/contribute/contracts.md: a bare model name belongs to the oldest endpoint that claims it, and every gateway decides alike."""

from collections.abc import Iterable, Mapping

from llmendpoint_gateway.core.endpoint.names import conflicts
from llmendpoint_gateway.core.endpoint.objects import Endpoint, parse_endpoint
from llmendpoint_gateway.core.endpoint.view import Part, View, change_view


def endpoint(key: str, created: str, *names: str) -> Endpoint:
    namespace, name = key.split("/")
    return Endpoint(namespace, name, created, names or (name,), "r1")


def claim_names(endpoints: Iterable[Endpoint]) -> Mapping[str, str]:
    """Which endpoint each name means, when these are there."""
    return change_view(View(), {endpoint.key: Part(endpoint) for endpoint in endpoints}).names


def test_a_bare_name_belongs_to_the_oldest_claim_whatever_the_order_of_the_list() -> None:
    old = endpoint("team-b/chat", "2026-01-01T00:00:00Z", "gpt")
    new = endpoint("team-a/chat", "2026-01-01T00:00:01Z", "gpt", "other")
    for endpoints in ([old, new], [new, old]):
        names = claim_names(endpoints)
        assert names["gpt"] == "team-b/chat"
        assert names["other"] == "team-a/chat"


def test_claims_of_the_same_second_are_settled_by_key_so_that_gateways_agree() -> None:
    twins = [endpoint("b/x", "2026-01-01T00:00:00Z", "m"), endpoint("a/x", "2026-01-01T00:00:00Z", "m")]
    assert claim_names(twins)["m"] == "a/x"


def test_namespace_and_name_always_mean_their_endpoint_even_when_another_claims_the_text() -> None:
    thief = endpoint("a/thief", "2020-01-01T00:00:00Z", "b/chat")
    owner = endpoint("b/chat", "2026-01-01T00:00:00Z")
    assert claim_names([thief, owner])["b/chat"] == "b/chat"


def test_a_name_falls_to_the_next_claim_when_its_owner_is_gone() -> None:
    new = endpoint("a/chat", "2026-01-01T00:00:01Z", "gpt")
    assert claim_names([new])["gpt"] == "a/chat"


def test_who_does_not_get_a_bare_name_is_told_who_has_it() -> None:
    old = endpoint("team-b/chat", "2026-01-01T00:00:00Z")
    new = endpoint("team-a/chat", "2026-01-01T00:00:01Z", "chat", "mine")
    names = claim_names([old, new])
    assert conflicts(new, names) == {"chat": "team-b/chat"}
    assert conflicts(old, names) == {}


def test_an_endpoint_that_names_nothing_claims_its_own_name_and_its_namespaced_one_is_its_in_any_case() -> (
    None
):
    body = {
        "metadata": {"namespace": "a", "name": "chat", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"source": "embedded://demo"}},
    }
    assert claim_names([parse_endpoint(body)]) == {"chat": "a/chat", "a/chat": "a/chat"}
