"""Which KV page belongs to which sequence.

Pages are numbered 0..pages-1 and have a fixed size in tokens. A page is in exactly one of three states: free, held
(reference count above 0), or cached (count 0, but its contents are named and may be found again). If no page is free,
the least recently used cached one is taken.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from llmendpoint_server.core.prefix import PageHash


class BlockManager:
    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"{pages} pages of {page_size} tokens: both must be at least 1.")
        self.pages = pages
        self.page_size = page_size
        self.restart(())

    def restart(self, held: Iterable[int]) -> None:
        """Start anew: a page has one reference for each time that `held` lists it, every other page is free, and no
        contents are known. Raises ValueError, and changes nothing, if `held` lists a page that does not exist."""
        references = [0] * self.pages
        for page in held:
            if not 0 <= page < self.pages:
                raise ValueError(f"Page {page} is held; pages are 0 to {self.pages - 1}.")
            references[page] += 1
        self._references = references
        self._free = deque(page for page, count in enumerate(references) if not count)
        self._name: list[PageHash | None] = [None] * self.pages
        self._by_name: dict[PageHash, int] = {}
        self._evictable: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Pages that `allocate` can return: free ones and those that are only cached."""
        return len(self._free) + len(self._evictable)

    @property
    def held(self) -> int:
        return self.pages - self.available

    def references(self, page: int) -> int:
        return self._references[page]

    def find(self, names: Iterable[PageHash]) -> list[int]:
        """The pages of the longest known prefix of `names`. Does not hold them."""
        found = []
        for name in names:
            page = self._by_name.get(name)
            if page is None:
                break
            found.append(page)
        return found

    def idle(self, pages: Sequence[int]) -> int:
        """How many of `pages` have no reference: holding them takes that many from `available`."""
        return sum(self._references[page] == 0 for page in pages)

    def hold(self, pages: Sequence[int]) -> None:
        """Add one reference to each of these pages, which `find` returned."""
        for page in pages:
            if self._references[page] == 0:
                del self._evictable[page]
            self._references[page] += 1

    def allocate(self, count: int) -> list[int]:
        """`count` pages with one reference each, contents undefined. Raises ValueError if `count` exceeds `available`."""
        if count > self.available:
            raise ValueError(f"{count} pages asked for, {self.available} available.")
        return [self._take() for _ in range(count)]

    def _take(self) -> int:
        if self._free:
            page = self._free.popleft()
        else:
            page, _ = self._evictable.popitem(last=False)
            name = self._name[page]
            assert name is not None
            del self._by_name[name]
            self._name[page] = None
        self._references[page] = 1
        return page

    def name(self, page: int, name: PageHash) -> None:
        """Record what a full page contains. A second page with the same contents stays unnamed."""
        if self._name[page] is None and name not in self._by_name:
            self._name[page] = name
            self._by_name[name] = page

    def forget(self, names: Iterable[PageHash]) -> None:
        """Remove these names, so that `find` no longer returns their pages, held or not."""
        for name in names:
            page = self._by_name.pop(name, None)
            if page is not None:
                self._name[page] = None
                if page in self._evictable:
                    del self._evictable[page]
                    self._free.append(page)

    def release(self, pages: Sequence[int]) -> None:
        """Drop one reference from each page of one sequence, its last page first. So a prefix, which is worth more than
        what follows it, is evicted later."""
        for page in reversed(pages):
            if self._references[page] < 1:
                raise ValueError(f"Page {page} is released but held by nobody.")
            self._references[page] -= 1
            if self._references[page] == 0:
                if self._name[page] is None:
                    self._free.append(page)
                else:
                    self._evictable[page] = None
