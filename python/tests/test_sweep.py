"""Sweeps: the dataset, the report, interruptions, faults, and a store in the network."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import boto3
import cloudpickle
import distributed
import numpy as np
import polars as pl
import pytest
from moto.server import ThreadedMotoServer

import flashsift
from flashsift.sweep import __main__ as command
from flashsift.sweep import fleet, plan

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TESTDATA = pathlib.Path(__file__).parents[2] / "testdata"
TRACES = [str(TESTDATA / f"{name}.parquet") for name in ["feed", "messenger", "game"]]
CELLS = ["--policy", "lru,arc", "--memory", "1MiB,4MiB", "--device", "ufs-3.1"]


@pytest.fixture(scope="module", autouse=True)
def shared():
    """Workers for all tests but those that start their own: a start takes seconds."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=None
    ) as cluster:
        ADDRESS.append(cluster.scheduler_address)
        yield


ADDRESS = []


def sweep(traces, output, *words):
    return command.main([*traces, "-o", str(output), "-q", "--scheduler", ADDRESS[0], *words])


def dataset(directory, kind="cells"):
    """Reads the dataset as its users do, row by row in an order that does not depend on files."""
    frame = pl.read_parquet(pathlib.Path(directory, kind, "**", "*.parquet"))
    return frame.sort("path", "policy", "frames", "device", "writeback")


def log(directory):
    path = pathlib.Path(directory, "log.jsonl")
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep without set-up, on workers of its own."""
    directory = tmp_path_factory.mktemp("sweep")
    words = [*TRACES, "-o", str(directory), "-q", "--workers", "2", *CELLS, "--figures"]
    assert command.main(words) == 0
    drawn = {ending: len(list(directory.glob(f"figures/*.{ending}"))) for ending in ("pdf", "svg")}
    assert drawn["pdf"] == drawn["svg"] > 3
    return directory


# Promises: Sampling and sweeps 5.
def test_the_dataset_has_the_rows_of_compare(swept):
    rows = dataset(swept)
    assert len(rows) == 3 * 2 * 2
    for path in TRACES:
        cells = flashsift.compare(
            path, policies=["lru", "arc"], memory=["1MiB", "4MiB"], devices="ufs-3.1"
        )
        own = rows.filter(pl.col("path") == path)
        both = cells.join(own, on=["policy", "frames"], suffix="_swept")
        for column in ["hits", "device_reads", "device_writes", "elapsed_s", "lifetime_years"]:
            assert both[column].equals(both[f"{column}_swept"], check_names=False), column
    partitions = {path.name for path in pathlib.Path(swept, "cells").iterdir()}
    assert {name.split("-")[0] for name in partitions} == {
        "trace_id=feed", "trace_id=messenger", "trace_id=game"
    }


# Promises: Sampling and sweeps 5.
def test_a_sweep_computes_nothing_twice(swept, tmp_path, capsys):
    directory = tmp_path / "again"
    shutil.copytree(swept, directory)
    (directory / "log.jsonl").unlink()
    assert sweep(TRACES, directory, *CELLS) == 0
    assert not [line for line in log(directory) if line["what"] == "result"]
    # A lost result is computed again, and only it.
    lost = next(directory.glob("cells/trace_id=feed-*/*.parquet"))
    lost.unlink()
    assert sweep(TRACES, directory, *CELLS) == 0
    done = [line for line in log(directory) if line["what"] == "result"]
    assert [line["key"] for line in done] == [lost.stem]
    assert dataset(directory).equals(dataset(swept))


# Promises: Sampling and sweeps 5.
def test_a_result_belongs_to_content_version_and_parameters():
    def name(sha256="a", version="flashsift 1", words=("--policy", "lru")):
        return plan.key(sha256, version, words)

    assert name() == name()
    others = [name("b"), name(version="flashsift 2"), name(words=("--policy", "arc"))]
    assert len({name(), *others}) == 4


def test_a_device_file_is_part_of_the_parameters(tmp_path):
    file = tmp_path / "card.toml"
    file.write_text("one")
    before = plan.key("a", "1", ["--device", str(file)])
    file.write_text("two")
    assert plan.key("a", "1", ["--device", str(file)]) != before


def test_traces_that_fail_are_named_and_the_others_are_swept(tmp_path, capsys):
    broken = tmp_path / "broken.trace"
    broken.write_text("not a trace\n" * 9)
    words = ["--policy", "lru", "--memory", "1MiB", "--json"]
    assert sweep([TRACES[0], str(broken)], tmp_path / "out", *words) == 1
    said = capsys.readouterr()
    assert str(broken) in said.err
    report = json.loads(said.out)
    assert [one["path"] for one in report["failures"]] == [str(broken)]
    assert len(dataset(tmp_path / "out")) == 1


def test_options_that_make_no_sense_have_the_text_of_the_command_line(tmp_path, capsys):
    assert sweep(TRACES[:1], tmp_path / "out", "--policy", "nonsense") == 1
    assert "no policy is called `nonsense`" in capsys.readouterr().err
    assert sweep([str(tmp_path / "*.none")], tmp_path / "out", "--policy", "lru") == 1
    assert "there is no such file" in capsys.readouterr().err


def test_tasks_are_packed_to_the_target():
    def item(seconds, number):
        facts = plan.Facts(f"/t/{number}", str(number), 1, 1, 1)
        return plan.Item(facts, "cells", (), str(number), seconds)

    rng = np.random.default_rng(7)
    items = [item(float(seconds), n) for n, seconds in enumerate(rng.exponential(2, 500))]
    packed = plan.batches(items, 5)
    assert sorted(one.key for batch in packed for one in batch.items) == sorted(
        one.key for one in items
    )
    # Each task but the last reaches the target; a longer one has one comparison only.
    assert all(batch.seconds >= 5 for batch in packed[:-1])
    assert all(batch.seconds < 10 or len(batch.items) == 1 for batch in packed)


def table(values):
    """Makes a frame of results: by policy, the figure of each trace."""
    rows = [
        {"path": f"/t/app-{n}", "trace": f"app-{n}", "policy": policy, "value": value}
        for policy, of in values.items()
        for n, value in enumerate(of)
    ]
    return pl.DataFrame(rows).with_columns(
        system=pl.lit("storage"), memory_bytes=1 << 20, frames=256
    )


def test_short_comparisons_are_shared_by_all_threads():
    """Eight comparisons of 0.6 s became one task of 5 s, and the second worker did nothing."""
    items = []
    for number in range(8):
        facts = plan.Facts(f"/t/{number}", str(number), 1, 1, 1)
        items.append(plan.Item(facts, "cells", (), str(number), 0.6))
    packed = plan.batches(items, plan.task_seconds(items, 5, threads=2))
    assert len(packed) == 4
    assert all(batch.seconds >= plan.LEAST_TASK_S for batch in packed)
    # Enough for all threads: tasks are as long as wanted.
    assert plan.task_seconds(items * 100, 5, threads=2) == 5
    assert plan.task_seconds(items * 5, 5, threads=2) == pytest.approx(3)
    assert plan.task_seconds([], 5, threads=2) == plan.LEAST_TASK_S


def test_a_policy_that_knows_the_trace_is_never_the_best():
    """The first report named belady as the policy that hits most on every trace."""
    values = {"lru": [1.0, 2.0], "belady": [9.0, 9.0], "arc": [2.0, 1.0]}
    found = fleet.answer(
        fleet.QUESTIONS[0], table(values), {"size": "x"}, "lru", None, fleet.offline_policies()
    )
    assert [row["policy"] for row in found["names"]] == ["lru", "arc", "belady"]
    assert [row["best_share"] for row in found["names"]] == [0.5, 0.5, 0.0]
    assert "belady (offline)" in fleet.table(found)


def test_two_traces_have_no_interval_and_like_policies_no_best(capsys):
    """Two traces on which all are alike once named a best policy, with a 95 % interval."""
    like = np.array([50.0, 60.0])
    question = fleet.QUESTIONS[0]
    alike = fleet.answer(question, table({"lru": like, "arc": like}), {"size": "1 MiB"}, "lru", None)
    apart = {"lru": like, "arc": like + 1}
    apart = fleet.answer(question, table(apart), {"size": "2 MiB"}, "lru", None)
    assert apart["names"][0]["difference"]["low"] is None
    assert fleet.shown_difference(apart, apart["names"][0]["difference"]).count("[") == 0
    store = types.SimpleNamespace(directory=pathlib.Path("out"))
    fleet.show({"traces": 2, "results": 4, "answers": [alike, apart]}, store)
    lines = capsys.readouterr().out.splitlines()
    assert any("1 MiB" in line and "all alike: mean 55" in line for line in lines), lines
    assert any("2 MiB" in line and "arc: mean 56" in line for line in lines), lines


def test_the_fleets_figures_are_the_naive_ones():
    rng = np.random.default_rng(3)
    lru = rng.uniform(10, 90, 40)
    values = {"lru": lru, "arc": lru + rng.normal(2, 1, 40), "fifo": lru - rng.uniform(0, 3, 40)}
    values["arc"][7] = lru[7] - 30
    question = fleet.QUESTIONS[0]
    found = fleet.answer(question, table(values), {"size": "1 MiB"}, "lru", None)
    rows = {row["policy"]: row for row in found["names"]}
    assert [row["policy"] for row in found["names"]] == ["arc", "lru", "fifo"]
    for name, own in values.items():
        row = rows[name]
        assert row["mean"] == pytest.approx(sum(own) / 40)
        ordered = sorted(own)
        # The median of 40: between the 20th and the 21st.
        assert row["quantiles"]["0.5"] == pytest.approx((ordered[19] + ordered[20]) / 2)
        best = sum(own[n] >= max(other[n] for other in values.values()) for n in range(40))
        assert row["best_share"] == pytest.approx(best / 40)
    away = values["fifo"] - lru
    shown = rows["fifo"]["difference"]
    assert shown["mean"] == pytest.approx(away.mean())
    # About the interval of a mean: 1.96 standard errors.
    error = away.std(ddof=1) / 40**0.5
    assert shown["low"] == pytest.approx(away.mean() - 1.96 * error, abs=0.5 * error)
    assert shown["high"] == pytest.approx(away.mean() + 1.96 * error, abs=0.5 * error)
    assert rows["lru"]["difference"] is None
    assert found["outliers"][0]["path"] == "/t/app-7"
    assert found["outliers"][0]["command"] == (
        "flashsift compare /t/app-7 --policy lru,arc --memory 1048576"
    )
    assert set(rows["lru"]["groups"]) == {"app"}


def test_groups_come_from_a_file(tmp_path):
    file = tmp_path / "groups.csv"
    file.write_text("trace,group\napp-0,phone\napp-1,car\n")
    groups = fleet.grouping(str(file))
    found = fleet.answer(
        fleet.QUESTIONS[0], table({"lru": [1.0, 3.0], "arc": [2.0, 4.0]}), {"size": "x"}, "lru",
        groups,
    )
    assert found["names"][0]["groups"] == {"car": 4.0, "phone": 2.0}
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no columns trace and group"):
        fleet.grouping(str(file))


def test_the_outliers_command_runs(swept):
    report = json.loads(pathlib.Path(swept, "report.json").read_text())
    assert {answer["question"] for answer in report["answers"]} == {
        "hits", "writes", "time", "lifetime"
    }
    frame = dataset(swept).with_columns(value=pl.col("hits"))
    text = fleet.command(
        fleet.QUESTIONS[2], frame, TRACES[0], ["lru", "arc"],
        {"writeback": frame["writeback"][0], "device": "ufs-3.1"},
    )
    words = text.split()
    assert words[:2] == ["flashsift", "compare"]
    done = subprocess.run(
        [flashsift.binary(), *words[1:], "--json"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.fixture
def bucket(monkeypatch):
    """A server of S3 with a trace in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="traces")
    for path in TRACES[:2]:
        client.upload_file(path, "traces", f"phones/{pathlib.Path(path).name}")
    yield "s3://traces/phones"
    server.stop()


def test_traces_are_read_from_s3(bucket, tmp_path):
    events = pl.DataFrame(flashsift.open(f"{bucket}/feed.parquet"))
    assert len(events) == len(pl.read_parquet(TRACES[0]))
    with pytest.raises(flashsift.FlashsiftError, match="there is no such file"):
        flashsift.open(f"{bucket}/missing.parquet")
    words = ["--policy", "lru", "--memory", "1MiB"]
    # The workers run already, without the address of the server.
    with distributed.Client(ADDRESS[0], set_as_default=False) as client:
        client.run(set_environment, {k: v for k, v in os.environ.items() if "AWS" in k})
    assert sweep([f"{bucket}/*.parquet"], tmp_path / "s3", *words) == 0
    assert sweep(TRACES[:2], tmp_path / "local", *words) == 0
    far, near = dataset(tmp_path / "s3"), dataset(tmp_path / "local")
    assert far["path"].to_list() == [f"{bucket}/feed.parquet", f"{bucket}/messenger.parquet"]
    assert far.drop("path").equals(near.drop("path"))


def set_environment(values):
    os.environ.update(values)


class Cluster:
    """A scheduler and workers as processes, each started again when it ends, as systemd does."""

    def __init__(self, workers, memory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        dask = [sys.executable, "-m", "dask"]
        self.commands = {
            "scheduler": [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(self.port),
                          "--no-dashboard"],
        }
        for number in range(workers):
            self.commands[f"worker-{number}"] = [
                *dask, "worker", self.address, "--nthreads", "1", "--memory-limit", memory,
                "--no-dashboard", "--death-timeout", "60", "--host", "127.0.0.1",
            ]
        self.running = {}
        self.closing = threading.Event()
        self.supervisor = threading.Thread(target=self.supervise)
        self.supervisor.start()

    def supervise(self):
        while not self.closing.wait(0.1):
            for name, words in self.commands.items():
                process = self.running.get(name)
                if process is None or process.poll() is not None:
                    self.running[name] = subprocess.Popen(
                        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )

    def kill(self, name):
        os.killpg(self.running[name].pid, signal.SIGKILL)

    def close(self):
        self.closing.set()
        self.supervisor.join()
        for name in reversed(self.commands):
            self.kill(name)
            self.running[name].wait()


@contextlib.contextmanager
def cluster(workers, memory):
    it = Cluster(workers, memory)
    try:
        yield it
    finally:
        it.close()


def wait_for(what, process, seconds=240):
    """Waits until `what` holds; the sweep may not end before."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert process.poll() is None, "the sweep ended early"
        assert time.monotonic() < end, "it takes too long"
        process_wait(process)
    return found


def process_wait(process):
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.1)


def allocate():
    """Takes memory until the nanny ends the worker."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 16) * 256))


@pytest.mark.skipif("SWEEP_FAULTS" not in os.environ, reason="a long form, which make soak runs")
# Promises: Sampling and sweeps 5.
def test_a_sweep_survives_faults(tmp_path):
    """Of four workers one is killed, one hangs, one exceeds its memory; the scheduler restarts.

    The dataset then equals that of a sweep without faults, row by row.
    """
    traces = sorted(str(path) for path in TESTDATA.glob("*.parquet"))
    cells = ["--policy", "lru,arc,sieve,lirs", "--memory", "1MiB,2MiB,4MiB"]
    assert sweep(traces, tmp_path / "calm", *cells) == 0
    out = tmp_path / "faults"
    with cluster(4, "700MB") as it:
        process = subprocess.Popen(
            [sys.executable, "-m", "flashsift.sweep", *traces, *cells, "-o", str(out), "-q",
             "--scheduler", it.address, "--task-seconds", "0", "--least-patience", "30"],
            stderr=subprocess.PIPE, text=True,
        )
        try:
            client = wait_for(lambda: connected(it.address), process)
            # The traces have been read, and the comparisons begin.
            wait_for(lambda: "sweep" in kinds(out), process)
            pids = wait_for(lambda: workers(client, 4), process)
            killed, hung, full, _ = pids
            # The sweep waits for this one, and the other faults come meanwhile. Beside two
            # compilers, 15 s of patience were too few for them.
            os.kill(pids[hung], signal.SIGSTOP)
            os.kill(pids[killed], signal.SIGKILL)
            with contextlib.suppress(OSError, distributed.comm.CommClosedError):
                client.run(allocate, workers=[full])
            wait_for(lambda: {killed, full} <= named(out), process)
            wait_for(lambda: hung in named(out), process)
            with contextlib.suppress(OSError, TimeoutError):
                client.close(timeout=1)
            it.kill("scheduler")
            _, messages = process.communicate(timeout=300)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert process.returncode == 0, messages
    assert {"scheduler lost", "scheduler restarted"} & kinds(out), messages
    assert dataset(out).equals(dataset(tmp_path / "calm"))


def kinds(directory):
    return {line["what"] for line in log(directory)}


def named(directory):
    """Returns the workers that the log names as lost or hanging."""
    return {line["worker"] for line in log(directory) if "worker" in line}


def connected(address):
    with contextlib.suppress(OSError, TimeoutError):
        return distributed.Client(address, timeout=2, set_as_default=False)


def workers(client, count):
    with contextlib.suppress(OSError, TimeoutError):
        found = client.run(os.getpid)
        return found if len(found) == count else None
