"""Sequential tests of shares: which share of the requests failed, or was slower than a bound.

Each test gives the logarithm of an e-value: a number that stays below 1/a, at all moments together, with a probability of
at least 1 - a while its null hypothesis holds (Ville's inequality). So it may be read after every request. A test by
p-values may not: read often enough, it rejects what is true. Sources: Ramdas, Grünwald, Vovk, Shafer, "Game-theoretic
statistics and safe anytime-valid inference" (2023), for the inequality and for mixtures of likelihood ratios; Wasserman,
Ramdas, Balakrishnan, "Universal inference" (2020), for null hypotheses that are a set.

| test | null hypothesis |
|---|---|
| above | the share is at most `limit` |
| below | the share is at least `limit` |
| more | green's share is at most blue's + `increase` |
| less | green's share is at least blue's + `increase` |

The rates hold for requests that fail independently, or in clumps that `clumping` has measured. All depend on counts alone;
only `clumping` depends on how the requests fell into cells. What one share is
tested for are those whose odds are the limit's times a factor, or divided by it; two shares are tested for all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

FACTORS = (1.25, 1.6, 2.5, 5.0, 12.0, 49.0)
"""Of the odds. For a limit of 2 %: 2.5, 3, 5, 9, 20 and 50 %."""
DIVISORS = (*(1 / factor for factor in FACTORS[:-1]), 0.0)
"""Of the odds, as factors: what is below a limit is searched as far as no hit at all."""
MIXTURE = (0.5, 5.0)
"""Parameters of the Beta distribution of the shares that are searched: most are small."""
IMPOSSIBLE = -1e300
"""The logarithm of 0, such that no hit times it is 0."""
ATTEMPTS, PRECISION = 40, 1e-7
"""At the most likely share of a null hypothesis, and how near to it, as a share of its distance to 0 and 1."""
NEAREST = 0.1
"""Of the distance to an end, is left by a step of Newton's method."""
TINY = 1e-100


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `requests` are counted against a revision. `clumping`: how many requests tell as much as one would that is
    independent of the others, 1 or more. Where failures come in tens, it is 10. `drift`: the same, because what was counted at one time
    says less of another."""

    requests: float = 0.0
    hits: float = 0.0
    clumping: float = 1.0
    drift: float = 1.0

    @property
    def rate(self) -> float:
        """0..1; 0 without requests."""
        return self.hits / self.requests if self.requests > 0 else 0.0

    @property
    def independent(self) -> tuple[float, float]:
        """Requests and hits, as if each were independent."""
        effect = self.clumping * self.drift
        return self.requests / effect, min(self.hits, self.requests) / effect


def pooled(*parts: Share) -> Share:
    """All requests together. How much they clump is that of the parts, weighed by their requests."""
    requests = sum(part.requests for part in parts)
    independent = sum(part.independent[0] for part in parts)
    clumping = requests / independent if independent > 0 else 1.0
    return Share(requests, sum(part.hits for part in parts), clumping)


def above(share: Share, limit: float) -> float:
    """Evidence that the share is above `limit` (0..1), as a logarithm. At a limit of 0 one hit is enough."""
    if limit <= 0:
        return math.inf if share.hits > 0 else 0.0
    return _one(share, limit, upper=True)


def below(share: Share, limit: float) -> float:
    """Evidence that the share is below `limit` (0..1), as a logarithm."""
    return _one(share, limit, upper=False)


def more(green: Share, blue: Share, increase: float) -> float:
    """Evidence that green's share is above blue's + `increase` (0..1), as a logarithm."""
    return _two(green, blue, increase, upper=True)


def less(green: Share, blue: Share, increase: float) -> float:
    """Evidence that green's share is below blue's + `increase` (0..1), as a logarithm."""
    return _two(green, blue, increase, upper=False)


def either(one: float, other: float) -> float:
    """Evidence against a null hypothesis that two tests share: one of them is enough. As a logarithm."""
    return _log_mean((one, other))


def clumping(requests: float, hits: float, squares: float, cells: float) -> float:
    """How many requests tell as much as one independent one: the variance of the counts of hits in `cells`, as a multiple
    of what it would be for independent requests (Kish's design effect). `squares`: the sum over the cells of
    hits²/requests. Where few cells were seen, a clump may not have shown itself: then FIRST_CLUMP is assumed at first."""
    return max(design_effect(requests, hits, squares, cells), FIRST_CLUMP / max(cells, 1.0))


def design_effect(requests: float, hits: float, squares: float, cells: float) -> float:
    """The same as far as it was seen in these cells: nothing is assumed of what they cannot have shown."""
    if cells < 2 or not 0 < hits < requests:
        return 1.0
    variance = (squares - hits * hits / requests) / (hits / requests * (1 - hits / requests)) / (cells - 1)
    return max(1.0, variance)


FIRST_CLUMP = 10.0
"""Requests that fail together, as long as nothing was measured."""
CELL_REQUESTS = 10
"""At least so many in a cell: with one or two in each no clump could be seen."""
PLENTY = 4
"""Times as many requests of green as of blue decide, if any number can."""
NEAR = 0.5
"""Standard errors: a figure this near to its limit may well be above it in truth."""


@dataclass(frozen=True, slots=True)
class Required:
    """The evidence, as logarithms, that shows a limit broken, and kept within the margin."""

    broken: float
    kept: float

    @classmethod
    def of(cls, tests: int, false_rollback_rate: float, miss_rate: float) -> Required:
        """`tests` share the rate of false rollbacks. All have to show that their limit is kept, so they share no miss rate."""
        return cls(math.log(max(1, tests) / false_rollback_rate), -math.log(miss_rate))


@lru_cache(maxsize=4096)
def best(blue: Share, allowed: float) -> float:
    """The evidence that a green that does as blue, and has PLENTY of requests, is less than `allowed` (0..1) above it."""
    return less(Share(PLENTY * blue.requests, PLENTY * blue.hits, blue.clumping), blue, allowed)


def near(share: Share, limit: float) -> bool:
    """Whether the share is above the limit (0..1), or less than NEAR standard errors below it. Then more requests are waited for."""
    requests, hits = share.independent
    if requests <= 0:
        return False
    rate = hits / requests
    return rate + NEAR * math.sqrt(rate * (1 - rate) / requests) > limit


def _one(share: Share, limit: float, *, upper: bool) -> float:
    if limit >= 1:
        return 0.0
    requests, hits = share.independent
    missed = requests - hits
    return _log_mean([hits * hit + missed * miss for hit, miss in _ratios(limit, upper)])


@lru_cache(maxsize=1024)
def _ratios(limit: float, upper: bool) -> tuple[tuple[float, float], ...]:
    """What a hit, and a request that is none, says for each of the shares that are searched: the logarithms of the ratios of
    likelihoods. They depend on no count, and a limit is looked at again and again."""
    return tuple(
        (
            math.log(share / limit) if share > 0 else IMPOSSIBLE,
            math.log1p(-share) - math.log1p(-limit),
        )
        for share in (_scaled(limit, factor) for factor in (FACTORS if upper else DIVISORS))
    )


def _two(green: Share, blue: Share, increase: float, *, upper: bool) -> float:
    """The mixture's likelihood over the best one of the null hypothesis."""
    g, b = green.independent, blue.independent
    if g[0] <= 0 or b[0] <= 0:
        return 0.0
    return _log_mixture(*g) + _log_mixture(*b) - _null(g, b, increase, upper=upper)


@lru_cache(maxsize=1024)
def _log_mixture(requests: float, hits: float) -> float:
    """Over all shares, weighted by the Beta distribution MIXTURE. `more` and `less` ask for the same shares."""
    a, b = MIXTURE
    return _log_beta(hits + a, requests - hits + b) - _MIXTURE_BETA


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


_MIXTURE_BETA = _log_beta(*MIXTURE)


def _null(g: tuple[float, float], b: tuple[float, float], increase: float, *, upper: bool) -> float:
    """The largest likelihood of both where green's share is at most (`upper`), or at least, blue's + `increase`."""
    green, blue = g[1] / g[0], b[1] / b[0]
    within = green <= blue + increase if upper else green >= blue + increase
    if within:
        return _log_likelihood(*g, green) + _log_likelihood(*b, blue)
    low, high = (blue, green - increase) if upper else (max(0.0, green - increase), blue)
    share = _peak(g, b, increase, max(0.0, low), min(1.0 - increase, high))
    return _log_likelihood(*b, share) + _log_likelihood(*g, min(1.0, share + increase))


def _peak(g: tuple[float, float], b: tuple[float, float], increase: float, low: float, high: float) -> float:
    """Blue's share at which the likelihood of both is largest. It is concave: Newton's method on its slope, and bisection
    where that leaves the interval, or jumps at one of the ends, where the slope is infinite. It begins at the share of all
    requests together, or in the middle where that is near an end. `low` and `high` are what each share was seen to be, so the
    largest likelihood lies between them; only where they are 0 or 1 may it be at an end."""

    def slope(share: float) -> tuple[float, float]:
        blue, green = _slope(b, share), _slope(g, share + increase)
        return blue[0] + green[0], blue[1] + green[1]

    most = 1 - increase
    if low <= 0 and slope(low)[0] <= 0:
        return low
    if high >= most and slope(high)[0] >= 0:
        return high
    share, least = (b[1] + g[1] - increase * g[0]) / (b[0] + g[0]), NEAREST * (high - low)
    if not low + least < share < high - least:
        share = (low + high) / 2
    for _ in range(ATTEMPTS):
        rising, bend = slope(share)
        low, high = (share, high) if rising > 0 else (low, share)
        tried = share - rising / bend
        if abs(tried - share) <= PRECISION * min(share, most - share):
            break
        inside = max(low, share * NEAREST) < tried < min(high, most - (most - share) * NEAREST)
        share = tried if inside else (low + high) / 2
    return share


def _slope(counts: tuple[float, float], share: float) -> tuple[float, float]:
    """Of the log-likelihood, and the slope of that. At 0 and 1 they are huge instead of infinite."""
    requests, hits = counts
    share, rest = max(share, TINY), max(1 - share, TINY)
    rising, falling = hits / share, (requests - hits) / rest
    return rising - falling, -rising / share - falling / rest


def _log_likelihood(requests: float, hits: float, share: float) -> float:
    missed = requests - hits
    return (hits * math.log(share) if share > 0 else (-math.inf if hits else 0.0)) + (
        missed * math.log1p(-share) if share < 1 else (-math.inf if missed else 0.0)
    )


def _scaled(share: float, factor: float) -> float:
    """With its odds times `factor`."""
    return factor * share / (1 + (factor - 1) * share)


def _log_mean(logs: Sequence[float]) -> float:
    most = max(logs)
    if math.isinf(most):
        return most
    return most + math.log(sum([math.exp(one - most) for one in logs]) / len(logs))
