"""Replacement policies that are written in Python, for prototypes."""

from collections.abc import Callable, Iterable

from . import _native


class Policy:
    """A replacement policy. It orders the pages of a cache and selects those that leave.

    A subclass defines `insert`, `hit`, `evict` and `remove`. The cache counts hits, and keeps
    content and dirty bits. Pages are numbers from 0 to `pages` - 1, in the order of files and of
    places in them.
    """

    def __init__(self, frames: int, pages: int) -> None:
        """`frames`: pages that the cache holds. `pages`: different pages of the trace."""
        self.frames = frames
        self.pages = pages

    def insert(self, page: int, write: bool) -> None:
        """A page that was not in the cache now is."""
        raise NotImplementedError

    def hit(self, page: int, write: bool) -> None:
        """A page in the cache is accessed."""
        raise NotImplementedError

    def evict(self, incoming: int | None) -> int | Iterable[int]:
        """Returns the page that leaves, or several in order, and removes it from the own order.

        `incoming` is the page that comes in; None while the cache is drained.
        """
        raise NotImplementedError

    def remove(self, page: int) -> None:
        """A page in the cache is truncated or deleted."""
        raise NotImplementedError

    def forget(self, page: int) -> None:
        """A page that is not in the cache is truncated or deleted."""

    def cleaned(self, page: int) -> None:
        """A dirty page was written back and stays in the cache."""

    def check(self) -> None:
        """Asserts the own invariants; `flashsift.check` calls it after every step."""


MakePolicy = Callable[[int, int], Policy]


def check(
    policy: MakePolicy, model: MakePolicy | None = None, histories: int = _native.HISTORIES
) -> None:
    """Runs the tests of every policy of flashsift against a policy.

    Each of the random histories runs in the cache of the simulator and, step by step beside it, in
    a minimal cache under `model`: a slow policy of the same definition. Without one, it is a second
    object of the policy itself. That finds victims that are not in the cache, pages that are
    forgotten, and decisions by chance. No history may have more hits than the bound.

    Raises FlashsiftError with the number of the history that fails, or what the policy raises.
    """
    for seed in range(histories):
        _native.check_policy(policy, model or policy, seed)
