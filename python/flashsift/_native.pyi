from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

SCHEMA: int
HISTORIES: int

class FlashsiftError(Exception): ...

class Examples(TypedDict):
    """One row for each file that the trace creates."""

    first: NDArray[np.float32]
    second: NDArray[np.float32]
    category: NDArray[np.uint8]
    """0 BAR, 1 Transient, 2 Long-living."""
    reused: NDArray[np.int8]
    """-1 where it is unknown."""
    born_us: NDArray[np.uint64]
    lived_us: NDArray[np.uint64]
    active_us: NDArray[np.uint64]
    max_size_bytes: NDArray[np.uint64]
    uid: NDArray[np.int64]
    """-1 where it is unknown."""
    in_cache: NDArray[np.bool_]
    deleted: NDArray[np.bool_]
    outlived_first: NDArray[np.bool_]
    outlived_second: NDArray[np.bool_]
    names: list[str]

def examples(
    path: str | PathLike[str],
    units_first: int = 20,
    units_second: int = 60,
    unit_us: int = 1_000_000,
    ram_bytes: int = 20_000_000,
    force: bool = False,
) -> Examples: ...
def feature_names(units: int) -> list[str]: ...

def event_stream(path: str | PathLike[str], format: str | None = None) -> object: ...
def inspect(path: str | PathLike[str], format: str | None = None) -> tuple[int, int]: ...
def check_policy(
    policy: Callable[[int, int], Any], model: Callable[[int, int], Any], seed: int
) -> None: ...
def run_policies(
    path: str | PathLike[str],
    name: str,
    policies: Sequence[tuple[str, Callable[[int, int], Any]]],
    frames: Sequence[int],
    writeback: Sequence[str],
    devices: Sequence[str],
    drain: bool,
    limit_bytes: int,
    format: str | None = None,
) -> list[str]: ...

class FileModel:
    def __init__(self, bytes: bytes) -> None: ...
    def score(self, rows: NDArray[np.float32]) -> NDArray[np.float32]: ...
    @property
    def threshold(self) -> float: ...
    @property
    def phase(self) -> int: ...
    @property
    def units(self) -> int: ...
    @property
    def unit_us(self) -> int: ...
    @property
    def kind(self) -> str: ...
