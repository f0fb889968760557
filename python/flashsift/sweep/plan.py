"""The tasks of a sweep: which cells run together, their size, and the name of their result."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

# Estimates of CPU time by access, from `make bench` and `flashsift sweep --log`. They only size
# tasks: a wrong one makes tasks longer or shorter, never results different.
NS_PER_ACCESS = 80
NS_PER_ACCESS_AND_DEVICE = 150
NS_PER_ACCESS_AND_SIFTER = 2000
START_S = 0.02
# Cells of one comparison, where the command line leaves them to the program.
POLICIES_OF_ALL = 21
SIZES = 5


@dataclass(frozen=True)
class Facts:
    """A trace, as a worker that has read it describes it."""

    path: str
    sha256: str
    bytes: int
    requests: int
    accesses: int

    @property
    def held_bytes(self) -> int:
        """Estimates the memory of the trace: a step and a time for each request."""
        return 12 * self.requests


@dataclass(frozen=True)
class Grid:
    """The cells that every trace runs, as options of `flashsift compare`."""

    policy: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    sift: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    writeback: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def commands(self) -> list[tuple[str, tuple[str, ...]]]:
        """Returns the kind of each comparison of a trace, and its options.

        Sifters run in a comparison of their own, behind LRU or the policy if there is one.
        """
        shared = (*flags("--memory", self.memory), *flags("--device", self.device))
        modes = tuple(word for mode in self.writeback for word in ("--writeback", mode))
        commands = []
        if self.policy or self.system or not self.sift:
            words = (*flags("--policy", self.policy), *flags("--system", self.system))
            commands.append(("cells", (*words, *shared, *modes, *self.options)))
        if self.sift:
            policy = self.policy if len(self.policy) == 1 and self.policy[0] != "all" else ()
            words = (*flags("--sift", self.sift), *flags("--policy", policy))
            one = modes if len(self.writeback) == 1 else ()
            commands.append(("sifters", (*words, *shared, *one)))
        return commands

    def seconds(self, kind: str, facts: Facts) -> float:
        """Estimates the CPU time of a comparison."""
        sizes = len(self.memory) or (SIZES if kind == "cells" else 1)
        devices = 25 if "all" in self.device else len(self.device)
        modes = max(1, len(self.writeback))
        if kind == "sifters":
            several = 12 if "all" in self.sift else len(self.sift)
            cells, ns = sizes * several, NS_PER_ACCESS_AND_SIFTER + NS_PER_ACCESS
        else:
            policies = POLICIES_OF_ALL if "all" in self.policy or not self.policy else 0
            policies += sum(policy != "all" for policy in self.policy)
            systems = 5 if "all" in self.system else max(1, len(self.system))
            cells, ns = sizes * policies * systems * modes, NS_PER_ACCESS
        ns += devices * NS_PER_ACCESS_AND_DEVICE
        return START_S + facts.accesses * (NS_PER_ACCESS + cells * ns) / 1e9


def flags(flag: str, values: Iterable[str]) -> tuple[str, ...]:
    """Returns an option with each of its values."""
    return tuple(word for value in values for word in (flag, value))


# Tasks that each thread has at least, if they take this time.
TASKS_OF_A_THREAD = 4
LEAST_TASK_S = 1.0


@dataclass(frozen=True)
class Item:
    """One comparison of one trace. Its key names the result."""

    facts: Facts
    kind: str
    words: tuple[str, ...]
    key: str
    seconds: float

    @property
    def partition(self) -> str:
        """Returns the folder of the results of the trace."""
        return f"trace_id={trace_id(self.facts)}"


def trace_id(facts: Facts) -> str:
    """Returns the name of a trace with the beginning of its hash."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", facts.path.rstrip("/").rsplit("/", 1)[-1])
    return f"{name.split('.')[0]}-{facts.sha256[:12]}"


@dataclass
class Batch:
    """Comparisons that one task runs."""

    items: list[Item]
    number: int = 0
    tries: int = 0
    names: str = field(init=False)

    def __post_init__(self) -> None:
        first = os.path.basename(self.items[0].facts.path)
        more = len({item.facts.path for item in self.items}) - 1
        self.names = f"{first} and {more} more" if more else first

    @property
    def seconds(self) -> float:
        return sum(item.seconds for item in self.items)


def file_hashes(words: Sequence[str]) -> list[str]:
    """Returns the hashes of the files that options name: devices and models."""
    hashes = []
    for word in words:
        for text in re.split(r"[,:=]", word):
            if text.endswith((".toml", ".safetensors", ".txt")) and os.path.isfile(text):
                with open(text, "rb") as file:
                    hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes


def key(sha256: str, version: str, words: Sequence[str]) -> str:
    """Returns the name of a result: a hash of the trace's content, the version and the options."""
    content: list[Any] = [sha256, version, list(words), file_hashes(words)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def items(grid: Grid, traces: Iterable[Facts], version: str) -> list[Item]:
    """Returns the comparisons of the sweep, each once: equal traces share a result."""
    found: dict[str, Item] = {}
    for facts in traces:
        for kind, words in grid.commands():
            name = key(facts.sha256, version, [kind, *words])
            found.setdefault(name, Item(facts, kind, words, name, grid.seconds(kind, facts)))
    return list(found.values())


def task_seconds(items: Sequence[Item], wanted_s: float, threads: int) -> float:
    """Returns the least time of a task: shorter than wanted if threads would have nothing to do.

    Each thread has several tasks, so that all end at about the same time. A task of less than a
    second would not be worth its way to a worker.
    """
    share = sum(item.seconds for item in items) / (TASKS_OF_A_THREAD * max(1, threads))
    return min(wanted_s, max(LEAST_TASK_S, share))


def batches(items: Iterable[Item], target_s: float) -> list[Batch]:
    """Packs comparisons into tasks of at least `target_s`, the longest first.

    A task that is longer than the target has one comparison: all cells of a trace, which is read
    once.
    """
    packed: list[Batch] = []
    small: list[Item] = []
    for item in sorted(items, key=lambda item: (-item.seconds, item.facts.path, item.kind)):
        if item.seconds >= target_s:
            packed.append(Batch([item]))
            continue
        small.append(item)
        if sum(one.seconds for one in small) >= target_s:
            packed.append(Batch(small))
            small = []
    if small:
        packed.append(Batch(small))
    for number, batch in enumerate(packed):
        batch.number = number
    return packed
