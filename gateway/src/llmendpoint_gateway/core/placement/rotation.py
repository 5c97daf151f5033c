"""Which revision is next among those that share an endpoint's requests."""

from llmendpoint_gateway.core.placement.routing import Target


class Rotation:
    """Smooth weighted rotation: each turn every revision gains its weight; the one with most credit is chosen and pays
    the sum.

    Unlike with a random draw, the shares are correct to about one request at any moment, and a small share is spread
    evenly. Credits survive a change of weights: they are worth one request at most.
    """

    def __init__(self) -> None:
        self._credits: dict[str, dict[str, int]] = {}

    def next(self, key: str, targets: tuple[Target, ...]) -> Target:
        """Choose one of `targets`, at least one. `key`: the endpoint's; each endpoint has its own rotation."""
        if len(targets) == 1:
            return targets[0]
        before = self._credits.get(key, {})
        credits = {t.revision: before.get(t.revision, 0) + t.weight for t in targets}
        drawn = max(targets, key=lambda t: credits[t.revision])
        credits[drawn.revision] -= sum(t.weight for t in targets)
        self._credits[key] = credits
        return drawn

    def forget(self, key: str) -> None:
        """Forget a deleted endpoint."""
        self._credits.pop(key, None)
