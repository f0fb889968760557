"""The package as its users call it: events, descriptions, comparisons, figures, types."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

import flashsift
from flashsift import _binary

REPOSITORY = pathlib.Path(__file__).parents[2]
TESTDATA = REPOSITORY / "testdata"
FEED = TESTDATA / "feed.parquet"


@pytest.fixture(scope="module")
def cells():
    return flashsift.compare(
        FEED, policies=["lru", "arc", "clock:insert_ref=1"], memory=["1MiB", "4MiB"],
        devices=["microsd-2012", "ufs-3.1"],
    )


def test_events_are_those_of_the_store_in_every_library():
    stored = pl.read_parquet(FEED)
    trace = flashsift.open(FEED)
    events = pl.DataFrame(trace)
    # The recording is of schema 3, which has no places.
    assert events["place"].is_null().all()
    same = events.drop("place").with_columns(pl.col("action").cast(pl.String))
    assert same.columns == stored.columns
    assert same.equals(stored.cast(same.schema))
    # A wheel is tested without these.
    pa, pd, duckdb = map(pytest.importorskip, ["pyarrow", "pandas", "duckdb"])
    arrow = pa.table(trace)
    assert arrow.num_rows == len(stored)
    assert pa.types.is_dictionary(arrow.schema.field("action").type)
    frame = pd.DataFrame.from_arrow(trace)
    assert frame["action"].value_counts()["read"] == (stored["action"] == "read").sum()
    relation = duckdb.from_arrow(pa.RecordBatchReader.from_stream(trace))
    found = relation.filter("action = 'write'").aggregate("sum(len)").fetchall()
    assert found[0][0] == stored.filter(pl.col("action") == "write")["len"].sum()


def test_a_store_written_again_by_a_library_opens(tmp_path):
    """Such a file was refused: annotations differ, and the metadata is lost."""
    events = pl.DataFrame(flashsift.open(FEED))
    again = tmp_path / "again.parquet"

    def opens():
        assert pl.DataFrame(flashsift.open(again)).equals(events)

    pl.read_parquet(FEED).write_parquet(again)
    opens()
    pq, duckdb = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("duckdb")
    pq.write_table(pq.read_table(FEED), again)
    opens()
    duckdb.sql(f"COPY (SELECT * FROM '{FEED}') TO '{again}' (FORMAT parquet)")
    opens()
    fastparquet = pytest.importorskip("fastparquet")
    # The recording has deltas that fastparquet misreads; a new store has none.
    program = os.environ.get("FLASHSIFT", "flashsift")
    subprocess.run([program, "import", FEED, "-o", tmp_path / "new.parquet"], check=True)
    fastparquet.write(again, fastparquet.ParquetFile(tmp_path / "new.parquet").to_pandas())
    opens()


def test_a_trace_for_perfetto_has_its_form_and_all_bytes(tmp_path):
    """Perfetto's definitions know each field; the counters end at the bytes of the trace."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from google.protobuf.unknown_fields import UnknownFieldSet

    output = tmp_path / "feed.pftrace"
    program = os.environ.get("FLASHSIFT", "flashsift")
    subprocess.run([program, "import", FEED, "-o", output], check=True)
    trace = pb2.Trace.FromString(output.read_bytes())
    tracks, last, at_ns = {}, {}, 0
    for packet in trace.packet:
        parts = [packet, packet.track_descriptor, packet.track_descriptor.counter,
                 packet.track_event, *packet.track_event.debug_annotations]
        assert not any(len(UnknownFieldSet(part)) for part in parts)
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks and packet.timestamp >= at_ns
            at_ns = packet.timestamp
            if event.type == event.TYPE_COUNTER:
                last[event.track_uuid] = event.counter_value
    events = pl.DataFrame(flashsift.open(FEED))
    for action, counter in [("read", "bytes read"), ("write", "bytes written")]:
        counted = sum(value for uuid, value in last.items() if tracks[uuid].name == counter)
        moved = events.filter(pl.col("action").cast(pl.String) == action)
        assert counted == moved["len"].sum() > 0


def test_a_stream_takes_its_memory_by_batches():
    pa = pytest.importorskip("pyarrow")
    reader = pa.RecordBatchReader.from_stream(flashsift.open(FEED))
    batches = [batch.num_rows for batch in reader]
    assert sum(batches) == len(pl.read_parquet(FEED))
    assert max(batches) <= 1 << 14 and len(batches) > 1
    # A consumer may leave early; the reader then ends, too.
    left = pa.RecordBatchReader.from_stream(flashsift.open(FEED))
    left.read_next_batch()
    del left


def test_errors_have_the_text_of_the_command_line(tmp_path):
    broken = tmp_path / "broken.trace"
    broken.write_text("not a trace\n" * 9)
    program = subprocess.run(
        [flashsift.binary(), "compare", broken], capture_output=True, text=True, check=False
    )
    text = program.stderr.strip().splitlines()[-1].removeprefix("flashsift: ")
    for call in [flashsift.compare, flashsift.describe, lambda path: pl.DataFrame(opened(path))]:
        with pytest.raises(flashsift.FlashsiftError) as raised:
            call(broken)
        # Messages of the program name arguments, not options; those of the module name both alike.
        assert _binary.in_python(str(raised.value)) == _binary.in_python(text)
    with pytest.raises(flashsift.FlashsiftError, match="there is no such file"):
        flashsift.open(tmp_path / "missing")
    with pytest.raises(flashsift.FlashsiftError, match="no policy is called `nonsense`"):
        flashsift.compare(FEED, policies="nonsense")
    with pytest.raises(flashsift.FlashsiftError, match="unexpected argument 'no_such"):
        flashsift.compare(FEED, no_such_option=True)
    # Messages of the program once named its options, such as `--system`.
    with pytest.raises(flashsift.FlashsiftError, match="systems.* cannot be used with") as raised:
        flashsift.compare(FEED, systems="fslru", metadata="ext4")
    assert "--" not in str(raised.value)


def opened(path):
    return flashsift.open(path)


def test_a_comparison_is_one_row_a_cell_and_device(cells):
    assert len(cells) == 3 * 2 * 2
    assert set(cells["policy"]) == {"lru", "arc", "clock:insert_ref=1"}
    assert set(cells["device"]) == {"microsd-2012", "ufs-3.1"}
    assert (cells["hit_ratio"] == cells["hits"] / cells["accesses"]).all()
    assert cells["memory_bytes"].unique().sort().to_list() == [1 << 20, 4 << 20]
    # No column is nested: the frame is tidy.
    assert not [column for column in cells.columns if cells[column].dtype.is_nested()]


def test_further_options_are_those_of_the_command_line():
    drained = flashsift.compare(FEED, policies="lru", memory="1MiB", drain=True, writeback="evict")
    assert drained["drained"][0] > 0
    ahead = flashsift.compare(FEED, memory="1MiB", readahead=["off", "linux:128k"])
    assert ahead["readahead"].to_list() == ["off", "linux:kib=128"]
    both = flashsift.compare(FEED, policies="lru", memory="1MiB", writeback=["evict", "linux"])
    assert len(both) == 2
    system = flashsift.compare(FEED, systems="hybrid-flush", memory="1MiB", writeback="hf")
    assert system["system"].to_list() == ["hybrid-flush"]
    sifters = flashsift.compare(FEED, sifters=["drop-all", "touch"], droppable="*")
    assert sifters["sifter"].to_list() == ["none", "drop-all", "touch"]


def test_a_description_is_plain_data():
    described = flashsift.describe(FEED)
    assert described["trace"] == "feed.parquet"
    assert described["requests"] == 34552
    assert flashsift.open(FEED).describe(top=1)["requests"] == 34552


def test_the_trace_behind_a_cache_is_a_trace():
    after = flashsift.open(FEED).after_cache("lru", "1MiB", writeback="evict")
    cells = flashsift.compare(FEED, policies="lru", memory="1MiB", writeback="evict")
    events = pl.DataFrame(after)
    pages = events.filter(pl.col("action") == "write")["len"].sum() // 4096
    assert pages == cells["device_writes"][0]
    path = after.path
    del after
    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_comparison_ends_with_ctrl_c_and_with_its_process(number):
    code = (
        "import flashsift, sys; print('ready', flush=True)\n"
        f"flashsift.compare({str(TESTDATA / 'map.parquet')!r}, policies='all', "
        "devices='all', memory=[f'{n}MiB' for n in range(1, 400)])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (started := children.read_text().split()):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    _, messages = process.communicate(timeout=600)
    assert number == signal.SIGKILL or "KeyboardInterrupt" in messages
    for child in map(int, started):
        if number == signal.SIGINT:
            assert not alive(child)
        else:
            wait_for_end(child)


def wait_for_end(pid):
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([end], [], [], 600)[0], "it runs on"
    finally:
        os.close(end)


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z"
    except FileNotFoundError:
        return False


def test_reading_leaves_the_lock_to_other_threads():
    counted, stop = 0, threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    flashsift.examples(TESTDATA / "browser.parquet")
    after = counted
    stop.set()
    thread.join()
    assert after > before


@pytest.mark.parametrize("name", ["hit_ratio", "writes", "reads", "tradeoff", "elapsed"])
def test_figures_are_written_as_pdf_and_svg(cells, name, tmp_path):
    figure = getattr(flashsift.plot, name)(cells)
    pdf, svg = flashsift.plot.save(figure, tmp_path / name)
    assert pdf.read_bytes().startswith(b"%PDF")
    drawn = svg.read_text()
    # Text stays text, with names, units and all policies.
    for words in ["lru", "arc", "clock:insert_ref=1", "MiB"]:
        assert words in drawn, words
    axes = figure.axes[0]
    assert axes.get_xlabel() and axes.get_ylabel()
    lines = [(line.get_color(), line.get_marker()) for line in axes.get_lines()]
    assert len(set(lines)) == len(lines) == 3


def test_a_figure_of_something_else_is_refused():
    with pytest.raises(flashsift.FlashsiftError, match="no column hits"):
        flashsift.plot.hit_ratio(pl.DataFrame({"x": [1]}))
    cells = flashsift.compare(FEED, policies="lru", memory="1MiB")
    with pytest.raises(flashsift.FlashsiftError, match="has no device"):
        flashsift.plot.elapsed(cells)


def test_urls_are_opened_by_fsspec(tmp_path):
    url = f"file://{FEED}"
    trace = flashsift.open(url)
    assert trace.name == "feed.parquet"
    assert len(pl.DataFrame(trace)) == len(pl.read_parquet(FEED))
    path = trace.path
    del trace
    assert not path.exists()
    with pytest.raises(flashsift.FlashsiftError, match="there is no such file"):
        flashsift.open(f"file://{tmp_path}/missing.parquet")


def test_the_types_are_strict():
    user = REPOSITORY / "python/tests/typed.py"
    package = [pathlib.Path(flashsift.__file__).parent]
    if "site-packages" in str(package[0]):
        # mypy takes an installed package's types, and does not check its bodies.
        package = []
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", REPOSITORY / "python/pyproject.toml",
         "--cache-dir", os.devnull, *package, user],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
