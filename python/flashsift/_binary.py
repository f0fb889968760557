"""Runs the program flashsift, which comes with this package.

Comparisons run in a process of their own: Python's lock is free, Ctrl-C ends them at once, and a
comparison that exceeds its memory takes nothing with it.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Sequence

from ._native import FlashsiftError

# Time between two looks at the memory of the program.
LOOK_S = 0.1


def binary() -> str:
    """Returns the path of the program: $FLASHSIFT, that of this installation, or one in PATH."""
    if named := os.environ.get("FLASHSIFT"):
        return named
    installed = pathlib.Path(sysconfig.get_path("scripts"), "flashsift")
    if installed.exists():
        return str(installed)
    if found := shutil.which("flashsift"):
        return found
    raise FlashsiftError(
        "the program flashsift is not installed beside this package; name it in $FLASHSIFT"
    )


def run(words: Sequence[str], limit_bytes: int | None = None) -> str:
    """Runs the program and returns what it prints. `limit_bytes`: memory that it may take."""
    command = [binary(), *words]
    process: subprocess.Popen[str] | None = None
    try:
        with interrupts_wait():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, encoding="utf-8", errors="replace",
                # It ends with this process, also if that is killed.
                env=os.environ | {"FLASHSIFT_PARENT": str(os.getpid())},
            )
        while True:
            try:
                out, messages = process.communicate(timeout=LOOK_S if limit_bytes else None)
                break
            except subprocess.TimeoutExpired:
                if limit_bytes and resident_bytes(process.pid) > limit_bytes:
                    raise FlashsiftError(
                        f"out of memory: it took more than {limit_bytes >> 20} MiB"
                    ) from None
    except BaseException:
        if process is not None:
            process.kill()
            process.wait()
        raise
    if process.returncode == 0:
        return out
    raise FlashsiftError(in_python(reason(process.returncode, messages)))


# Arguments whose name is not that of the option with underscores.
KEYWORDS = {"policy": "policies", "system": "systems", "device": "devices", "sift": "sifters"}


def in_python(message: str) -> str:
    """Names the arguments of Python in a message of the program, which names its options."""

    def keyword(found: re.Match[str]) -> str:
        name = found[1]
        return KEYWORDS.get(name, name.replace("-", "_"))

    return re.sub(r"--([a-z][a-z-]*)", keyword, message)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Lets Ctrl-C wait: it could otherwise end the start of a program, which then runs on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        signal.raise_signal(signal.SIGINT)


def resident_bytes(pid: int) -> int:
    """Returns the memory that a process has; 0 if it has ended."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def reason(status: int, messages: str) -> str:
    """Returns the text of the error among the messages of the program."""
    if status < 0:
        if "memory allocation of" in messages:
            return "out of memory"
        return f"flashsift was ended by signal {-status}"
    lines = messages.strip().splitlines()
    for number, line in enumerate(lines):
        for prefix in ("flashsift: ", "error: "):
            if line.startswith(prefix) and not line.startswith("flashsift: warning: "):
                rest = [line.removeprefix(prefix), *lines[number + 1 :]]
                return "\n".join(rest).split("\n\nUsage:")[0].strip()
    return messages.strip() or f"flashsift failed with status {status}"
