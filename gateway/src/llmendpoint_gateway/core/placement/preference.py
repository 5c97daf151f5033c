"""Which of several replicas gets a prompt: the one that has the longest beginning of it in its cache, while it is not
much busier than the others; else the less busy of two that are drawn.

Two draws, and not the least busy of all: several gateways know the same loads, and would all send to the same replica.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llmendpoint_gateway.core.placement.outstanding import Outstanding
from llmendpoint_gateway.core.placement.prefixes import Prefixes
from llmendpoint_gateway.core.request.prompt import BYTES_PER_TOKEN, Prompt

MOST_OF_MEAN = 1.25
"""A replica may have this many times the mean of the candidates."""
MOST_OF_SHARE = 1.25
"""A prompt's beginning lies on enough replicas if their fair share of all prompts times this number is the share of those
that begin so."""
FREE_REQUESTS = 2
"""What a match is worth where no load is known."""

TURN = 0x9E3779B97F4A7C15
"""2^64 / golden ratio, odd: its multiples are spread evenly, so that turns become draws."""


class Wanted(NamedTuple):
    """A prompt, and the cluster and adapter that it is for."""

    prompt: Prompt
    cluster: str
    adapter: str


class Busy(NamedTuple):
    """How busy the candidates are: `of` an address in units of which a request adds `unit` for each token; the unit is a
    token if every candidate's load is known, else a request."""

    of: Mapping[str, int]
    mean: float
    in_tokens: bool

    def bound(self, saved: int) -> float:
        """The most that a replica may have which saves so many bytes of the prompt: another one is the faster one only if
        it has so much less to do."""
        free = saved / BYTES_PER_TOKEN if self.in_tokens else FREE_REQUESTS if saved else 0
        return MOST_OF_MEAN * self.mean + free


def how_busy(addresses: Sequence[str], outstanding: Outstanding, load: Mapping[str, int]) -> Busy:
    """`load`: requests in flight by address."""
    tokens, total = outstanding.tokens, 0
    try:
        for address in addresses:
            total += tokens[address]
        return Busy(tokens, total / len(addresses), True)
    except KeyError:
        counts = {address: load.get(address, 0) for address in addresses}
        return Busy(counts, sum(counts.values()) / len(counts), False)


def preferred(
    addresses: Sequence[str], wanted: Wanted, prefixes: Prefixes, busy: Busy, turn: int
) -> str | None:
    """The replica with the longest match that is not too busy; else the one of the session; None if there is none.

    A beginning that lies on too few replicas for its share of the prompts saves nothing: it is to lie on more.
    """
    prompt, cluster, adapter = wanted
    if not prompt.chain and not prompt.session:
        return None
    known, among = prefixes.bits(cluster), 0
    for address in addresses:
        among |= known.get(address, 0)
    for match in prefixes.matches(cluster, adapter, prompt, among):
        enough = match.bits.bit_count() * MOST_OF_SHARE >= match.share * len(addresses)
        holders = [a for a in addresses if known.get(a, 0) & match.bits]
        if found := _least_busy(holders, busy, busy.bound(match.size if enough else 0), turn):
            return found
    if bits := prefixes.of_session(cluster, adapter, prompt, among):
        holders = [a for a in addresses if known.get(a, 0) & bits]
        return _least_busy(holders, busy, busy.bound(prompt.size), turn)
    return None


def _least_busy(holders: Sequence[str], busy: Busy, bound: float, turn: int) -> str | None:
    """None if even that is busier than `bound`."""
    found = holders[0]
    if len(holders) > 1:
        start = turn % len(holders)
        found = min((*holders[start:], *holders[:start]), key=busy.of.__getitem__)
    return found if busy.of[found] <= bound else None


def draw(addresses: Sequence[str], busy: Busy, load: Mapping[str, int], turn: int) -> str:
    """The less busy of two of these replicas. `turn`: a number that differs from one request to the next."""
    count = len(addresses)
    if count == 1:
        return addresses[0]
    mixed = turn * TURN & (1 << 64) - 1
    one = (mixed >> 32) * count >> 32
    other = (mixed & (1 << 32) - 1) * (count - 1) >> 32
    pair = (addresses[one], addresses[other + (other >= one)])
    return min(pair, key=lambda a: (busy.of[a], load.get(a, 0)))
