"""The JSON of `compare`, and the columns of sweeps, are as documented."""

import json
import pathlib
import subprocess

import jsonschema
import polars as pl
import pytest

import flashsift
from flashsift._trace import flat
from flashsift.columns import CELLS, SIFTERS

REPOSITORY = pathlib.Path(__file__).parents[2]
FEED = REPOSITORY / "testdata" / "feed.parquet"
SCHEMA = json.loads((REPOSITORY / "docs" / "compare.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

COMMANDS = {
    "plain": "--policy lru,belady --memory 1MiB --drain --verdict",
    "devices": "--policy lru,arc --memory 1MiB,4MiB --device microsd-2012,ufs-3.1 --verdict",
    "combined": "--policy lru --memory 1MiB --metadata ext4 --attribution --writeback linux",
    "systems": "--system all --removals ignore --memory 1MiB --writeback hf --device ufs-3.1 --nvm pcm-2016,slc-area",
    "readahead": "--readahead off,linux:128k,paper --memory 1MiB --device microsd-2012",
    "sifters": "--sift oracle,touch --memory 1MiB --device microsd-2012 --droppable *",
    "sample": "--sample 10% --policy lru,arc --memory 4MiB",
    "objects": "--object-cache --policy lru,s3fifo:admit=bloom --memory 1MiB",
    "curve": "--curve 20 --policy lru,arc --memory 1MiB,4MiB",
    "explained": "--sift controller --memory 1MiB --droppable * --explain *",
}


def lines(words):
    done = subprocess.run(
        [flashsift.binary(), "compare", FEED, "--json", "-q", *words.split()],
        capture_output=True, text=True, check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def printed():
    return {name: lines(words) for name, words in COMMANDS.items()}


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_line_is_as_the_schema_says(printed, name):
    assert printed[name]
    for line in printed[name]:
        VALIDATOR.validate(line)
    # A line with a field that the schema lacks is refused, and one without a field that it needs.
    first = printed[name][0]
    assert not VALIDATOR.is_valid(first | {"unknown": 1})
    assert not VALIDATOR.is_valid({key: first[key] for key in first if key != "trace"})


def test_each_described_field_is_printed_by_some_command(printed):
    """The schema describes nothing that does not exist."""
    rare = {
        # Of traces with O_DIRECT.
        "direct_reads", "direct_writes",
        # Of runs too short to show the write amplification.
        "write_amplification_reason",
    }
    for kind, names in {
        "cell": ["plain", "devices", "combined", "systems", "readahead"],
        "sampled": ["sample"], "sifter": ["sifters"], "objects": ["objects"], "curve": ["curve"],
    }.items():
        seen = {key for name in names for line in printed[name] for key in line}
        described = set(SCHEMA["$defs"][kind]["properties"])
        assert described - seen - rare == set()


def test_sweeps_have_a_column_for_each_field(printed):
    # Neither the time of a run, nor lists, nor costs by the name of a memory, which are one column.
    others = {"schema", "cpu_ns_per_access", "by_program", "by_reason", "memory"}
    # A sweep has neither objects with sizes nor curves.
    for name, words in COMMANDS.items() - {(n, COMMANDS[n]) for n in ("objects", "curve")}:
        columns = SIFTERS if "--sift" in words else CELLS
        for line in printed[name]:
            if "verdict" not in line and "decision" not in line:
                own = {key: value for key, value in line.items() if key not in others}
                assert set(flat(own)) <= set(columns), name


def test_actions_are_names():
    events = pl.read_parquet(FEED)
    assert events["action"].dtype == pl.String
    assert {"read", "write", "sync", "open"} <= set(events["action"].unique())
