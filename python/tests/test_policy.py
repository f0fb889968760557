"""Policies that are written in Python."""

import collections
import pathlib

import pytest
from typed import Fifo

import flashsift

FEED = pathlib.Path(__file__).parents[2] / "testdata" / "feed.parquet"


class Lru(flashsift.Policy):
    def __init__(self, frames, pages):
        self.order = collections.OrderedDict()

    def insert(self, page, write):
        self.order[page] = None

    def hit(self, page, write):
        self.order.move_to_end(page)

    def evict(self, incoming):
        return self.order.popitem(last=False)[0]

    def remove(self, page):
        del self.order[page]


class SlowLru(Lru):
    """The same by time stamps."""

    def __init__(self, frames, pages):
        self.used, self.now = {}, 0

    def insert(self, page, write):
        self.now += 1
        self.used[page] = self.now

    hit = insert

    def evict(self, incoming):
        page = min(self.used, key=self.used.get)
        del self.used[page]
        return page

    def remove(self, page):
        del self.used[page]


# Promises: Sampling and sweeps 4.
def test_policies_in_python_have_the_results_of_those_in_rust():
    for writeback in ["evict", "linux"]:
        cells = flashsift.compare(
            FEED, policies=["lru", "fifo", Lru, Fifo], memory="1MiB",
            writeback=writeback, devices="ufs-3.1",
        )
        timed = ["policy", "cpu_ns_per_access", "lifetime_gain"]
        by_name = {
            name: cells.filter(cells["policy"] == name).drop(timed)
            for name in ["lru", "fifo", "Lru", "Fifo"]
        }
        assert len(by_name["lru"]) == 1
        assert by_name["Lru"].equals(by_name["lru"])
        assert by_name["Fifo"].equals(by_name["fifo"])
        assert not by_name["lru"].equals(by_name["fifo"])


# Promises: Sampling and sweeps 4.
def test_good_policies_pass_the_tests_of_every_policy():
    flashsift.check(Fifo)
    flashsift.check(Lru, SlowLru)


class ForgetsRemovals(Lru):
    def remove(self, page):
        pass


class EvictsNothing(Lru):
    def evict(self, incoming):
        return []


class Raises(Lru):
    def hit(self, page, write):
        raise ZeroDivisionError(page)


class BreaksItsInvariant(Lru):
    def check(self):
        assert len(self.order) < 3, "three pages"


@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [
        (ForgetsRemovals, flashsift.FlashsiftError, "which is not in the cache"),
        (EvictsNothing, flashsift.FlashsiftError, "returned no page"),
        (Raises, ZeroDivisionError, "[0-9]+"),
        (BreaksItsInvariant, AssertionError, "three pages"),
        (flashsift.Policy, NotImplementedError, None),
    ],
)
def test_defects_are_found(policy, error, words):
    with pytest.raises(error, match=words):
        flashsift.check(policy)


def test_a_model_that_differs_is_found():
    with pytest.raises(flashsift.FlashsiftError, match=r"seed \d+, \d+ frames.*differs"):
        flashsift.check(Lru, Fifo)


def test_an_exception_in_a_comparison_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        flashsift.compare(FEED, policies=Raises, memory="256KiB")


def test_options_that_a_policy_in_python_cannot_have_are_refused():
    with pytest.raises(flashsift.FlashsiftError, match="runs without metadata"):
        flashsift.compare(FEED, policies=Lru, metadata="ext4")
    with pytest.raises(flashsift.FlashsiftError, match="is no size"):
        flashsift.compare(FEED, policies=Lru, memory="much")
