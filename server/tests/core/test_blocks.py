"""docs/concepts/architecture.md: prompts that begin alike share pages: who holds them, who finds them again, who loses them first."""

import pytest

from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.randomness import uniform


def test_a_released_page_with_a_name_is_found_again_until_it_is_needed() -> None:
    blocks = BlockManager(pages=2, page_size=4)
    (page,) = blocks.allocate(1)
    blocks.name(page, b"x")
    blocks.release([page])
    assert blocks.available == 2
    assert blocks.find([b"x"]) == [page]
    blocks.allocate(2)
    assert blocks.find([b"x"]) == []


def test_the_least_recently_used_page_is_evicted_first_and_a_prefix_after_what_follows_it() -> None:
    blocks = BlockManager(pages=3, page_size=4)
    old = blocks.allocate(1)
    chain = blocks.allocate(2)
    for page, name in zip(old + chain, (b"old", b"prefix", b"rest"), strict=True):
        blocks.name(page, name)
    blocks.release(old)
    blocks.release(chain)
    evicted = [blocks.allocate(1) for _ in range(3)]
    assert evicted == [old, [chain[1]], [chain[0]]]


def test_a_page_that_is_forgotten_is_not_found_again_and_goes_to_whoever_wants_one() -> None:
    blocks = BlockManager(pages=3, page_size=4)
    pages = blocks.allocate(2)
    for page, name in zip(pages, (b"x", b"y"), strict=True):
        blocks.name(page, name)
    blocks.release(pages[1:])
    blocks.forget([b"y", b"x", b"of no page"])
    assert blocks.find([b"x"]) == blocks.find([b"y"]) == []
    blocks.release(pages[:1])
    assert sorted(blocks.allocate(3)) == [0, 1, 2]


def test_a_shared_page_stays_until_its_last_holder_lets_go() -> None:
    blocks = BlockManager(pages=1, page_size=4)
    page = blocks.allocate(1)
    blocks.name(page[0], b"x")
    blocks.hold(blocks.find([b"x"]))
    blocks.release(page)
    assert (blocks.available, blocks.references(page[0])) == (0, 1)
    blocks.release(page)
    assert blocks.available == 1


def test_a_second_page_with_the_same_contents_keeps_no_name_and_is_free_on_release() -> None:
    blocks = BlockManager(pages=2, page_size=4)
    first, second = blocks.allocate(2)
    blocks.name(first, b"x")
    blocks.name(second, b"x")
    blocks.release([second])
    assert blocks.find([b"x"]) == [first]


def test_a_match_ends_at_the_first_unknown_page() -> None:
    blocks = BlockManager(pages=2, page_size=4)
    first, second = blocks.allocate(2)
    blocks.name(first, b"a")
    blocks.name(second, b"c")
    assert blocks.find([b"a", b"b", b"c"]) == [first]


def test_releasing_what_nobody_holds_is_a_defect_that_shows() -> None:
    with pytest.raises(ValueError, match="held by nobody"):
        BlockManager(pages=1, page_size=4).release([0])


def test_noise_depends_on_seed_and_position_alone_and_is_spread_evenly() -> None:
    assert uniform(7, 3) == uniform(7, 3)
    assert len({uniform(seed, position) for seed in (-1, 0, 1, 2**62) for position in range(50)}) == 200
    draws = [uniform(11, position) for position in range(4000)]
    shares = [sum(low <= draw < low + 0.25 for draw in draws) / 4000 for low in (0, 0.25, 0.5, 0.75)]
    assert all(abs(share - 0.25) < 0.03 for share in shares)
