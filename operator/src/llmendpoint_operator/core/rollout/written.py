"""Figures as they stand in the status, where a hand or another version of the operator may have changed them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmendpoint_verdicts.shares import Share

from .evidence import Figures
from .tails import Tail

Json = dict[str, Any]


def present(fields: Json) -> Json:
    """Without the fields that are None."""
    return {key: value for key, value in fields.items() if value is not None}


def figures_json(figures: Figures | None) -> Json | None:
    """The JSON form. Of each latency the bounds nearest to its 95th percentile."""
    if figures is None:
        return None
    return present(
        {
            "requests": figures.requests,
            "errors": figures.errors,
            "clumping": round(figures.clumping, 2),
            "drift": _drift_json(figures.drift),
            "ttft": _tail_json(figures.ttft),
            "itl": _tail_json(figures.itl),
            "e2e": _tail_json(figures.e2e),
        }
    )


def _tail_json(tail: Tail | None) -> Json | None:
    """What is read again gives the same JSON, so that a status that nothing changed is not written again."""
    if tail is None:
        return None
    kept = _rounded(tail.nearest())
    slower = [
        {"seconds": bound, "requests": int(requests), "clumping": clumping}
        for bound, requests, clumping in zip(kept.bounds, kept.slower, kept.clumpings, strict=True)
    ]
    p95 = kept.p95
    p95 = None if p95 is None else round(p95, 6)
    drift = _drift_json(kept.drift)
    return present({"requests": int(kept.requests), "p95Seconds": p95, "slower": slower, "drift": drift})


def _drift_json(drift: float) -> float | None:
    rounded = round(drift, 2)
    return rounded if rounded > 1 else None


def _rounded(tail: Tail) -> Tail:
    return Tail(
        float(round(tail.requests)),
        tail.bounds,
        tuple(float(round(one)) for one in tail.slower),
        tuple(round(one, 2) for one in tail.clumpings),
        drift=tail.drift,
    )


def parse_figures(found: Mapping[str, Any] | None) -> Figures | None:
    """None for what no operator wrote: then nothing is compared. An older one wrote no `slower`."""
    if found is None:
        return None
    try:
        failed = _parse_share(found, found["errors"], found.get("clumping", 1.0))
        ttft, itl, e2e = (_parse_tail(found.get(name)) for name in ("ttft", "itl", "e2e"))
    except (ArithmeticError, KeyError, TypeError, ValueError, AttributeError):
        return None
    drift = failed.drift
    return Figures(
        int(failed.requests), int(failed.hits), ttft, itl, e2e, clumping=failed.clumping, drift=drift
    )


def _parse_tail(found: Mapping[str, Any] | None) -> Tail | None:
    """Raises what the values raise, and ValueError where they contradict each other."""
    if found is None or not found.get("slower"):
        return None
    bounds = [float(one["seconds"]) for one in found["slower"]]
    shares = [_parse_share(found, one["requests"], one.get("clumping", 1.0)) for one in found["slower"]]
    slower = [share.hits for share in shares]
    if not (
        bounds[0] > 0
        and bounds[-1] < math.inf
        and sorted(set(bounds)) == bounds
        and slower == sorted(slower)[::-1]
    ):
        raise ValueError("the bounds do not rise, or the numbers of slower requests do not fall")
    clumpings = tuple(share.clumping for share in shares)
    return Tail(shares[0].requests, tuple(bounds), tuple(slower), clumpings, drift=shares[0].drift)


def _parse_share(found: Mapping[str, Any], hits: Any, clumping: Any) -> Share:
    """Of the requests that were found. Raises ValueError where it is none."""
    share = Share(float(found["requests"]), float(hits), float(clumping), float(found.get("drift", 1.0)))
    effects = (share.clumping, share.drift)
    if not (
        0 <= share.hits <= share.requests <= MOST_REQUESTS and all(1 <= e <= MOST_REQUESTS for e in effects)
    ):
        raise ValueError(f"{hits} of {share.requests:g} requests is no share")
    return share


MOST_REQUESTS = 1e12
"""Of a window: more than any gateway could have counted."""
