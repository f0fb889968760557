"""Filter a recording into a file, compressed when its name says so."""

import lzma
import os
from pathlib import Path

from .trace_filter import TraceFilter


class Counts:
    def __init__(self, trace_filter):
        self._kept = trace_filter.kept
        self._dropped = trace_filter.dropped

    def report(self):
        lines = [f"lines kept: {self._kept.total()}, dropped: {self._dropped.total()}"]
        lines += [f"  kept    {n:8} {call}" for call, n in self._kept.most_common(25)]
        lines += [f"  dropped {n:8} {reason}" for reason, n in self._dropped.most_common()]
        return "\n".join(lines)


def open_text(path, mode):
    """Open plain or .xz text.  Paths in a trace may hold any bytes."""
    options = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
    if Path(path).suffix == ".xz":
        # The preset of `xz -9e`; readers never need one.
        preset = 9 | lzma.PRESET_EXTREME if "w" in mode else None
        return lzma.open(path, mode + "t", preset=preset, **options)
    return open(path, mode, **options)


def filter_file(source, destination, hide_host=None):
    """Write the kept lines; the destination appears only when complete."""
    trace_filter = TraceFilter(hide_host)
    destination = Path(destination)
    partial = destination.with_name("partial-" + destination.name)
    try:
        with open_text(source, "r") as lines, open_text(partial, "w") as out:
            for line in lines:
                line = trace_filter.keep(line)
                if line is not None:
                    out.write(line)
        os.replace(partial, destination)
    finally:
        partial.unlink(missing_ok=True)
    return Counts(trace_filter)
