"""The program that is examined, and the command line of an experiment."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def done(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A command that has ended well."""
    options = {"capture_output": True, "encoding": "utf-8", **options}
    ended = subprocess.run([str(word) for word in words], **options)
    if ended.returncode:
        raise RuntimeError((ended.stderr or "").strip() or f"{words[0]} ended with {ended.returncode}")
    return ended


def output(*words: object, **options: object) -> str:
    return done(*words, **options).stdout


def records(*words: object) -> list[dict]:
    """The records that a command prints as JSON, one a line."""
    return [json.loads(line) for line in output(*words).splitlines()]


def parser(description: str, name: str = "run.sh") -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=name, description=description)
    made.add_argument("--flashsift", type=Path, required=True, help=argparse.SUPPRESS)
    return made


def report_parser(description: str, again: bool = False, folders: str = "") -> argparse.ArgumentParser:
    """Of a program that writes pages from results, and from traces in `folders` beside our own."""
    made = parser(description)
    made.add_argument("--check", action="store_true", help="write nothing; fail if a result is stale")
    if again:
        made.add_argument("--again", action="store_true", help="run every cell, also those that are known")
    if folders:
        made.add_argument("--own", type=Path, required=True, help=argparse.SUPPRESS)
        made.add_argument("folders", type=Path, nargs="*", metavar="TRACES_DIR", help=folders)
    return made


def parsed(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with the folders of $FLASHSIFT_TRACES."""
    args = made.parse_args()
    if "folders" in args:
        args.folders += [Path(folder) for folder in os.environ.get("FLASHSIFT_TRACES", "").split(":") if folder]
        for folder in args.folders:
            if not folder.is_dir():
                made.error(f"{folder} is no folder")
    return args


def run(main: Callable[[], int | None], name: str = "run.sh") -> None:
    """Runs it; what it lacks is an error without a traceback."""
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"{name}: {error}")
