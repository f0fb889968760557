"""The part of a sweep that workers run."""

import hashlib
import json
import os
import subprocess
import time
from collections import OrderedDict
from typing import Any

import flashsift
from flashsift._binary import binary, run
from flashsift._native import inspect
from flashsift._trace import Trace, flat

from .plan import Facts, Item

# Fetched traces that a worker keeps: one being read and the next.
KEPT = 2
fetched: OrderedDict[str, Trace] = OrderedDict()

# Shares of a worker's memory: the trace with its cells, and all of the process.
TRACE_SHARE = 0.6
PROCESS_SHARE = 0.85


def version() -> str:
    """Returns the version of the program on this worker."""
    done = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def opened(path: str) -> Trace:
    """Opens a trace; one that was fetched stays for its next task."""
    if "://" not in path:
        return flashsift.open(path)
    if path in fetched:
        fetched.move_to_end(path)
        return fetched[path]
    trace = fetched[path] = flashsift.open(path)
    while len(fetched) > KEPT:
        fetched.popitem(last=False)
    return trace


def describe(paths: list[str]) -> list[Facts | tuple[str, str]]:
    """Returns the facts of traces, or the path and the reason where one cannot be read."""
    found: list[Facts | tuple[str, str]] = []
    for path in paths:
        try:
            trace = opened(path)
            with open(trace.path, "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.path.getsize(trace.path)
            requests, accesses = inspect(trace.path, trace.format)
            found.append(Facts(path, sha256, size, requests, accesses))
        except (flashsift.FlashsiftError, OSError) as error:
            found.append((path, str(error)))
    return found


def work(items: list[Item], memory_bytes: int) -> list[dict[str, Any]]:
    """Runs comparisons. Returns the rows of each, or the reason why there are none."""
    results = []
    for item in items:
        began = time.monotonic()
        result: dict[str, Any] = {"key": item.key}
        try:
            result["rows"] = compared(item, memory_bytes)
        except (flashsift.FlashsiftError, OSError) as error:
            result["error"] = str(error)
        result["seconds"] = round(time.monotonic() - began, 3)
        results.append(result)
    return results


def compared(item: Item, memory_bytes: int) -> list[dict[str, Any]]:
    trace = opened(item.facts.path)
    limits = []
    if memory_bytes:
        limits = ["--trace-memory", str(max(1 << 20, int(memory_bytes * TRACE_SHARE)))]
    words = ["compare", str(trace.path), "--json", "-q", "--threads", "1", *limits, *item.words]
    limit = int(memory_bytes * PROCESS_SHARE) if memory_bytes else None
    rows = []
    for line in run(words, limit).splitlines():
        record = json.loads(line)
        # By the name of the memory, as JSON: the columns are the same for all names.
        costs = record.pop("memory", None)
        row = flat(record) | {"nvm_costs": costs and json.dumps(costs, sort_keys=True)}
        # The time of this run, which differs from run to run, is no result.
        row.pop("cpu_ns_per_access", None)
        rows.append(row | {"trace": trace.name, "path": item.facts.path})
    return rows
