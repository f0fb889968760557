"""A user's program, which mypy checks strictly."""

import pathlib

import flashsift


class Fifo(flashsift.Policy):
    """The page that came first leaves first."""

    def __init__(self, frames: int, pages: int) -> None:
        super().__init__(frames, pages)
        self.queue: dict[int, None] = {}

    def insert(self, page: int, write: bool) -> None:
        self.queue[page] = None

    def hit(self, page: int, write: bool) -> None:
        pass

    def evict(self, incoming: int | None) -> int:
        page = next(iter(self.queue))
        del self.queue[page]
        return page

    def remove(self, page: int) -> None:
        del self.queue[page]


def compared(path: pathlib.Path) -> float:
    cells = flashsift.compare(path, policies=["lru", Fifo], memory=["1MiB", 1 << 22])
    flashsift.plot.hit_ratio(cells, title="hits").savefig("hits.pdf")
    flashsift.check(Fifo)
    described: dict[str, object] = flashsift.describe(path)
    assert described
    return float(cells["hit_ratio"].sum())
