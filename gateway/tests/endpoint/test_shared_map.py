"""docs/concepts/gateway.md: a change of one endpoint costs the same among few and among many."""

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.shared_map import GONE, SHELVES, SharedMap, with_changes

keys = st.integers(0, 5) | st.sampled_from([SHELVES, SHELVES + 1])  # some share a shelf
changes = st.lists(st.dictionaries(keys, st.integers(0, 3) | st.just(GONE), max_size=5), max_size=8)


@given(changes)
def test_it_holds_what_a_dict_would_hold_and_an_older_one_never_changes(steps: list[dict[int, int]]) -> None:
    plain: dict[int, int] = {}
    mapping = SharedMap[int, int]()
    for news in steps:
        before, mapping = (mapping, dict(mapping)), mapping.changed(news)
        plain |= news
        plain = {key: value for key, value in plain.items() if value is not GONE}
        assert mapping == plain
        assert (len(mapping), sorted(mapping)) == (len(plain), sorted(plain))
        assert all(
            mapping.get(key, -1) == plain.get(key, -1) and (key in mapping) == (key in plain)
            for key in range(6)
        )
        assert before[0] == before[1]


def test_a_changed_copy_shares_all_other_shelves() -> None:
    many = with_changes({}, {n: n for n in range(10 * SHELVES)})
    copy = many.changed({7: GONE})
    assert sum(one is not other for one, other in zip(many._shelves, copy._shelves, strict=True)) == 1
    assert len(copy) == len(many) - 1
