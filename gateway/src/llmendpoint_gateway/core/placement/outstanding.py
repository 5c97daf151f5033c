"""How many tokens each replica still has to compute: what it last reported, and what this gateway has sent since."""

from typing import NamedTuple


class Sent(NamedTuple):
    """What a request added to a replica. `asked`: the number of the last question to the replica before that."""

    tokens: int = 0
    asked: int = 0


NOTHING = Sent()


class _Since:
    """Of one replica. `sent`: tokens that its last answer cannot contain. `before`: those of them that were sent before it
    was asked again. `asked`: the number of the last question to it."""

    __slots__ = ("asked", "before", "sent")

    def __init__(self) -> None:
        self.sent = self.before = self.asked = 0


class Outstanding:
    """`tokens`: by address; a replica whose load is not known is absent."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self._since: dict[str, _Since] = {}
        self._questions = 0

    def ask(self, address: str) -> None:
        """The replica is asked for its load."""
        since = self._since.setdefault(address, _Since())
        self._questions += 1
        since.before, since.asked = since.sent, self._questions

    def note(self, address: str, reported: int) -> None:
        """It has answered. It may have begun what was sent before the question, so only what was sent later is added."""
        since = self._since.setdefault(address, _Since())
        since.sent, since.before = since.sent - since.before, 0
        self.tokens[address] = reported + since.sent

    def send(self, address: str, tokens: int) -> Sent:
        """A request goes to the replica. Returns what `end` needs."""
        since = self._since.get(address)
        if since is None:
            return NOTHING
        since.sent += tokens
        if address in self.tokens:
            self.tokens[address] += tokens
        return Sent(tokens, since.asked)

    def end(self, address: str, sent: Sent) -> None:
        """The request is over. If the replica was asked meanwhile, its answer tells the rest."""
        since = self._since.get(address)
        if since is None or since.asked != sent.asked:
            return
        since.sent -= sent.tokens
        if address in self.tokens:
            self.tokens[address] -= sent.tokens

    def expire(self, address: str) -> None:
        """What the replica reported is too old."""
        self.tokens.pop(address, None)

    def drop(self, address: str) -> None:
        """Forget a replica."""
        self.tokens.pop(address, None)
        self._since.pop(address, None)
