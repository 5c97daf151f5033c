"""Random numbers by counter: the same (seed, position) gives the same number, whatever else is in the batch.

So a seeded request is repeatable, and a preempted request can be recomputed without changing its text.
"""

from __future__ import annotations

_MASK = 2**64 - 1


def _splitmix64(state: int) -> int:
    """One output of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) for a 64-bit state."""
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def member_seed(seed: int, index: int) -> int:
    """The seed of a request's answer number `index`. The first answer has the request's own."""
    return _splitmix64(_splitmix64(seed & _MASK) ^ _splitmix64(~index & _MASK)) if index else seed


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) for the token at `position` of the sequence seeded with `seed`."""
    return (_splitmix64(_splitmix64(seed & _MASK) ^ position) >> 11) / 2**53
