"""Which replica probably still has the beginning of a prompt in its KV cache: those that got a prompt with the same
beginning not long ago.

The table of a cluster maps a link of a prompt's chain (core/request/prompt.py) to a set of replicas, as bits of a number.
It has two generations: a link that is used goes into the new one, and when the new one is full it becomes the old one,
whose links are forgotten. So memory is bounded, and what nobody uses any more goes first, as it does in the replicas' own
caches. If all tables together are too large, the largest one forgets: a flood of prompts for one endpoint costs no other
endpoint what it knows. Nothing here needs to be right: a wrong entry costs a replica the computation of a prompt.

A replica's number belongs to one pod while that is ready, and no later pod gets the same one.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple

from llmendpoint_gateway.core.endpoint.view import Part, View
from llmendpoint_gateway.core.placement.popular import Latest
from llmendpoint_gateway.core.placement.routing import cluster_name
from llmendpoint_gateway.core.request.prompt import BLOCKS, Prompt

SHARDS = 16
"""A table is divided by four bits of the link, because a large dict takes milliseconds to grow or to free."""
MOST_LINKS = 8192
"""Of one generation of a shard."""
MOST = 2 * SHARDS * MOST_LINKS
"""Links in all, and of one cluster; they take about 20 MiB."""
AT_ONCE, TABLES = 1024, 64
"""If all tables together are too large, about so many links are forgotten, of at most so many of the largest tables."""
MOST_BITS = 256
"""Replicas of one cluster that have a number. Further ones are chosen by their load alone."""

Bits = int
"""A set of replicas."""


class _Shard:
    __slots__ = ("new", "old")

    def __init__(self) -> None:
        self.new: dict[int, Bits] = {}
        self.old: dict[int, Bits] = {}


class _Cluster:
    """`seed`: belongs to its links only. `bits`: address -> its bit. `pods`: address -> pod. `used`: how many bits were
    given away under this seed. `present`: all bits. `latest`: what its prompts began with. `shards`: its table, empty before
    its first prompt; `size`: links in it; `turn`: the shard that forgets next."""

    __slots__ = ("bits", "latest", "pods", "present", "seed", "shards", "size", "turn", "used")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.used = self.present = self.size = self.turn = 0
        self.latest = Latest()
        self.bits: dict[str, Bits] = {}
        self.pods: dict[str, str] = {}
        self.shards: tuple[_Shard, ...] = ()

    def get(self, key: int) -> Bits:
        if not self.shards:
            return 0
        shard = self.shards[key & SHARDS - 1]
        return shard.new.get(key, 0) | shard.old.get(key, 0)

    def put(self, key: int, bits: Bits) -> None:
        shard = self.shards[key & SHARDS - 1]
        if key not in shard.new:
            if len(shard.new) >= MOST_LINKS:
                self._age(shard)
            self.size += 1
        shard.new[key] = bits

    def put_session(self, key: int, bit: Bits) -> None:
        """A session is at one replica."""
        if self.shards[key & SHARDS - 1].old.pop(key, 0):
            self.size -= 1
        self.put(key, bit)

    def forget(self, most: int) -> None:
        """Links that were not used for long: at least one, and not many more than `most`."""
        before = self.size
        for turn in range(2 * SHARDS):
            if before - self.size >= (most if turn < SHARDS else 1):
                break
            self._age(self.shards[self.turn])
            self.turn = (self.turn + 1) % SHARDS

    def _age(self, shard: _Shard) -> None:
        self.size -= len(shard.old)
        shard.old, shard.new = shard.new, {}


class Match(NamedTuple):
    """`bits`: the replicas that have at least the first `size` bytes of the prompt. `share`: of the cluster's latest
    prompts that began with these bytes, and matched no further."""

    size: int
    bits: Bits
    share: float


class Laid(NamedTuple):
    """A prompt went to a replica that has the first `matched` bytes of it. `elsewhere`: another one has more."""

    matched: int
    elsewhere: bool


NOWHERE = Laid(0, False)
NO_BITS: Mapping[str, Bits] = {}


class Prefixes:
    """`MOST` and `MOST_BITS` bound it. Replicas come and go by `change`; links of no other replica are kept."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}
        self._gone: deque[_Shard] = (
            deque()
        )  # of clusters that are gone; each prompt frees one, which takes up to a millisecond
        self._seeds = self._links = 0

    def __len__(self) -> int:
        """Links in all tables."""
        return self._links

    def change(self, before: View, after: View, keys: Collection[str]) -> None:
        """Apply the change of these endpoints. A pod that takes over another's address, or that was not ready for a
        while, begins with nothing: its container may be a new one."""
        for key in keys:
            pods = _ready(key, after.part(key))
            for cluster in _ready(key, before.part(key)).keys() - pods.keys():
                if gone := self._clusters.pop(cluster, None):
                    self._gone.extend(gone.shards)
            for cluster, present in pods.items():
                self._replicas(cluster, present)

    def bits(self, cluster: str) -> Mapping[str, Bits]:
        """Address -> its bit, of the replicas that may be remembered."""
        known = self._clusters.get(cluster)
        return known.bits if known else NO_BITS

    def matches(self, cluster: str, adapter: str, prompt: Prompt, among: Bits) -> Iterator[Match]:
        """The longest match first; then each shorter one that more replicas of `among` have."""
        known, chain = self._clusters.get(cluster), prompt.chain
        if known is None or not among or not known.shards:
            return
        shards = known.shards
        seed, least, most = _seed(known, adapter), 0, len(chain)
        while least < most:  # `least` links are known to match
            middle = (least + most + 1) // 2
            key = chain[middle - 1] ^ seed
            shard = shards[key & SHARDS - 1]
            if shard.new.get(key, 0) & among or shard.old.get(key, 0) & among:
                least = middle
            else:
                most = middle - 1
        seen = 0
        for length in range(least, 0, -1):
            link = chain[length - 1] ^ seed
            bits = known.get(link) & among
            if bits & ~seen:
                seen |= bits
                yield Match(BLOCKS[length - 1], bits, known.latest.share(link))
                if seen == among:
                    return

    def of_session(self, cluster: str, adapter: str, prompt: Prompt, among: Bits) -> Bits:
        """The replica that got the session's last prompt."""
        known = self._clusters.get(cluster)
        if known is None or not prompt.session:
            return 0
        return known.get(_of_session(prompt, known, adapter)) & among

    def lay(self, cluster: str, adapter: str, prompt: Prompt, address: str) -> Laid:
        """The prompt goes to this replica, and will lie there."""
        known = self._clusters.get(cluster)
        if known is None:
            return NOWHERE
        if not known.shards:
            known.shards = tuple(_Shard() for _ in range(SHARDS))
        bit, seed, shards, before = (
            known.bits.get(address, 0),
            _seed(known, adapter),
            known.shards,
            known.size,
        )
        present, most, own, longest = known.present, 0, 0, 0
        for length, link in enumerate(prompt.chain, 1):
            key = link ^ seed
            shard = shards[key & SHARDS - 1]
            new = shard.new.get(key, 0)
            bits = new | shard.old.get(key, 0)
            if bits & present:
                most, longest = length, key
                if bits & bit:
                    own = length
            if bit & ~new:
                known.put(key, new | bit)
        if most:
            known.latest.add(longest, len(known.bits))
        if prompt.session and bit:
            known.put_session(_of_session(prompt, known, adapter), bit)
        self._links += known.size - before
        if self._gone:
            gone = self._gone.popleft()
            self._links -= len(gone.new) + len(gone.old)
        while self._links > MOST:
            self._forget()
        return Laid(BLOCKS[own - 1] if own else 0, own < most)

    def _forget(self) -> None:
        """Links of the largest clusters."""
        left = AT_ONCE
        largest = nlargest(TABLES, self._clusters.values(), key=lambda known: known.size)
        least = largest[0].size // 2
        for known in largest:
            before = known.size
            if left <= 0 or before < least:
                break
            known.forget(left)
            self._links -= before - known.size
            left -= before - known.size

    def _replicas(self, cluster: str, pods: dict[str, str]) -> None:
        """These are the cluster's replicas now: address -> pod."""
        known = self._clusters.get(cluster)
        if known is None:
            known = self._clusters[cluster] = _Cluster(self._new_seed())
        for address in [a for a, pod in known.pods.items() if pods.get(a) != pod]:
            known.bits.pop(address, None)
        new = [address for address in pods if address not in known.bits]
        if known.used + len(new) > MOST_BITS and 2 * len(known.bits) <= MOST_BITS:
            # Most numbers belong to pods that are gone. With a new seed nothing is known of any of them.
            known.seed, known.used, new = self._new_seed(), 0, list(pods)
        known.pods = pods
        for address in new:
            if known.used < MOST_BITS:
                known.bits[address] = 1 << known.used
                known.used += 1
        known.present = sum(known.bits.values())

    def _new_seed(self) -> int:
        self._seeds += 1
        return hash(b"%d" % self._seeds)


def _seed(cluster: _Cluster, adapter: str) -> int:
    return cluster.seed ^ hash(adapter) if adapter else cluster.seed


def _of_session(prompt: Prompt, cluster: _Cluster, adapter: str) -> int:
    return hash(("session", prompt.session, _seed(cluster, adapter)))


def _ready(key: str, part: Part) -> dict[str, dict[str, str]]:
    """Cluster -> address -> pod, of the replicas that may get requests."""
    return {
        cluster_name(key, revision): {r.address: r.pod for r in replicas if r.routable}
        for revision, replicas in part.revisions.items()
    }
