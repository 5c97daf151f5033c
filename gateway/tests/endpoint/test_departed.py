"""docs/concepts/gateway.md: requests for an endpoint that was deleted a moment ago wait for it before the answer is 404."""

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS, MOST_NAMES, Departed

CHAT = {"chat": "a/chat", "a/chat": "a/chat"}


def test_a_name_that_meant_an_endpoint_a_moment_ago_is_known_for_the_grace_and_no_longer() -> None:
    departed = Departed()
    departed.note(CHAT, {}, 10.0)
    assert departed.endpoint("chat", 10.0) == departed.endpoint("a/chat", 10.0) == "a/chat"
    assert departed.endpoint("other", 10.0) is None
    assert departed.endpoint("chat", 10.0 + GRACE_SECONDS) is None
    departed.note({}, {}, 10.0 + GRACE_SECONDS)
    assert len(departed) == 0


def test_a_name_that_means_an_endpoint_again_is_forgotten() -> None:
    departed = Departed()
    departed.note(CHAT, {}, 0.0)
    departed.note({}, {"chat": "b/chat"}, 1.0)
    assert departed.endpoint("chat", 1.0) is None
    assert departed.endpoint("a/chat", 1.0) == "a/chat"


def test_the_oldest_names_are_forgotten_when_there_are_too_many() -> None:
    departed = Departed()
    for number in range(MOST_NAMES + 10):
        departed.note({f"n{number}": "a/x"}, {}, number / 1e6)
    assert len(departed) == MOST_NAMES
    assert departed.endpoint("n0", 0.1) is None
    assert departed.endpoint(f"n{MOST_NAMES}", 0.1) == "a/x"
