"""docs/concepts/architecture.md: a page of the KV cache is found again only under the weights, the salt and the tokens that made it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core.prefix import Weights, chain_hash, root_hash


def test_a_chain_depends_on_everything_before_it() -> None:
    names = {
        chain_hash(key, root_hash(key, Weights(revision), salt), tokens)
        for key in (b"k1", b"k2")
        for revision in ("r1", "r2")
        for salt in ("", "s")
        for tokens in ((1, 2), (2, 1), (258,), (1, 2, 0))
    }
    assert len(names) == 2 * 2 * 2 * 4


def test_an_adapter_that_is_loaded_again_does_not_find_the_pages_of_its_first_load() -> None:
    loads = [Weights("r"), Weights("r", "a", 1), Weights("r", "a", 2), Weights("r", "b", 1)]
    assert len({root_hash(b"k", weights, "") for weights in loads}) == len(loads)


@given(
    st.text("12\0é", max_size=8), st.tuples(*[st.integers(0, 8)] * 4), st.integers(1, 3), st.integers(1, 3)
)
def test_letters_that_move_from_one_field_to_another_make_another_root(
    letters: str, cuts: tuple[int, ...], one: int, other: int
) -> None:
    (a, b), (c, d) = sorted(cuts[:2]), sorted(cuts[2:])
    first = Weights(letters[:a], letters[a:b], one), letters[b:]
    second = Weights(letters[:c], letters[c:d], other), letters[d:]
    assert (root_hash(b"k", *first) == root_hash(b"k", *second)) == (first == second)
    assert root_hash(b"k", Weights(letters, generation=1), "1") != root_hash(
        b"k", Weights(letters, generation=11), ""
    )
