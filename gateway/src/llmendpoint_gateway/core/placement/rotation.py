"""Whose turn it is among revisions that share an endpoint's requests."""

from llmendpoint_gateway.core.placement.routing import Target


class Rotation:
    """Smooth weighted rotation: each turn every part earns its weight, and the richest pays the sum and is drawn.

    Unlike a random draw the shares are right to about one request at any moment, and a small share is spread evenly
    rather than drawn in runs. Credits outlive a change of weights: they are worth a request at most.
    """

    def __init__(self) -> None:
        self._credits: dict[str, dict[str, int]] = {}

    def next(self, key: str, targets: tuple[Target, ...]) -> Target:
        """`targets`: at least one; `key`: the endpoint's, each has a rotation of its own."""
        if len(targets) == 1:
            return targets[0]
        before = self._credits.get(key, {})
        credits = {t.revision: before.get(t.revision, 0) + t.weight for t in targets}
        drawn = max(targets, key=lambda t: credits[t.revision])
        credits[drawn.revision] -= sum(t.weight for t in targets)
        self._credits[key] = credits
        return drawn

    def forget(self, key: str) -> None:
        """The endpoint is gone."""
        self._credits.pop(key, None)
