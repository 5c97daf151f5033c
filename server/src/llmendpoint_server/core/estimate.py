"""How long the work ahead will take, from how fast work was done."""

from __future__ import annotations

_HALF_LIFE_SECONDS = 10.0
MIN_RETRY_AFTER = 1.0
MAX_RETRY_AFTER = 60.0


class DrainRate:
    """Tokens computed per second of stepping: two exponential averages, of tokens and of seconds, and their ratio."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """One step computed `tokens` (prompt and output alike) in `seconds`."""
        keep = 0.5 ** (max(seconds, 0.0) / _HALF_LIFE_SECONDS)
        self._tokens = self._tokens * keep + tokens
        self._seconds = self._seconds * keep + max(seconds, 0.0)

    @property
    def tokens_per_second(self) -> float:
        """0 until something was observed."""
        return self._tokens / self._seconds if self._seconds else 0.0

    def retry_after(self, outstanding_tokens: int) -> float:
        """Seconds until the work ahead is done, within [MIN_RETRY_AFTER, MAX_RETRY_AFTER]."""
        rate = self.tokens_per_second
        wait = outstanding_tokens / rate if rate else MIN_RETRY_AFTER
        return min(max(wait, MIN_RETRY_AFTER), MAX_RETRY_AFTER)
