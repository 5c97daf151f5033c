"""A request apart from its sequences: it asks for `n` answers to one prompt, and each is a sequence, its member.

Member 0 begins alone. When its prompt is computed the others may begin: they find its full pages in the prefix cache, and
compute only what follows these. So a page is shared only when it is full, and none is shared for writing.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_server.core.adapters import NO_PLACE
from llmendpoint_server.core.prefix import PageHash
from llmendpoint_server.core.queue import order_of
from llmendpoint_server.core.randomness import member_seed
from llmendpoint_server.core.request import Request
from llmendpoint_server.core.sequence import Sequence, ends_of


@dataclass(slots=True, eq=False)
class Group:
    """`members`: those that have not ended, in the order of their index."""

    request: Request
    members: list[Sequence]

    def begin(self) -> None:
        """One of them runs. From now on the request has no deadline."""
        for member in self.members:
            member.begun = True

    def prompt_computed(self) -> None:
        for member in self.members:
            member.ready = True


def make_group(
    request: Request,
    seed: int,
    root: PageHash,
    number: int,
    page_size: int | None,
    eos_token_ids: frozenset[int] = frozenset(),
    place: int = NO_PLACE,
) -> Group:
    """`root`: of the names of its pages. `number`: how many sequences came before. `page_size`: None without a prefix
    cache. `eos_token_ids`: of the model. `place`: of its adapter."""
    ends = ends_of(request, eos_token_ids)
    shared = (len(request.prompt) - 1) // page_size * page_size if page_size else 0
    return Group(
        request,
        [
            Sequence(
                request=request,
                seed=member_seed(seed, index),
                tokens=list(request.prompt),
                names=[root],
                order=order_of(request, number + index),
                index=index,
                ready=index == 0,
                shared=shared if index else 0,
                ends=ends,
                place=place,
            )
            for index in range(request.n)
        ],
    )
