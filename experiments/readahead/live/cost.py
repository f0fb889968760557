"""Measure the time on processors of `tune readahead --live` beside reads.

At a fixed rate, the time of the watch is measured. Without a limit of the rate, the time of the
reader for each read is: it has the cost of the kernel's tracepoints. Runs with and without the
watch alternate, and their order changes from round to round. Writes cost.csv.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import stage
from apps import testbed
from common.program import run
from common.rows import write_dicts

HERE = Path(__file__).resolve().parent
FILE_BYTES = 1 << 30
MEMORY_BYTES = 96 << 20
HOT_BYTES = 32 << 20
RATE = 20_000
JOBS = 4
LOADS = {
    "random, misses": ["--rw=randread", "--norandommap=0", f"--size={FILE_BYTES}"],
    "random, hits": ["--rw=randread", "--norandommap=1", f"--size={HOT_BYTES}"],
    "sequential": ["--rw=read", f"--size={FILE_BYTES}"],
}
# Reads of a run without a limit of the rate.
READS = {"random, misses": 40_000, "random, hits": 400_000, "sequential": 240_000}
FIELDS = ["load", "rate", "watch", "round", "seconds", "reads", "reads_s", "reader_cpu_s", "watch_cpu_s", "device_pages",
          "demanded_pages", "ahead_pages", "lost_records"]


def read_with_fio(volume, group, load, seconds):
    """Run fio in the group, for these seconds at the rate, or, if 0, without a limit."""
    jobs = 1 if load == "sequential" or not seconds else JOBS
    limit = ([f"--rate_iops={RATE // jobs}", "--time_based=1", f"--runtime={seconds}"] if seconds
             else [f"--number_ios={READS[load]}", f"--io_size={READS[load] * 4096}"])
    words = ["fio", "--name=reader", f"--filename={volume.point}/data", "--ioengine=psync", "--bs=4k",
             f"--numjobs={jobs}", "--group_reporting=1", "--invalidate=0", "--thread=0",
             "--output-format=json", "--allow_file_create=0", *limit, *LOADS[load]]
    done = subprocess.run(words, check=True, capture_output=True, text=True, preexec_fn=lambda: testbed.join(group))
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def measure(program, volume, group, load, watch, seconds, trace):
    """One run. Return a row of cost.csv."""
    volume.sync()
    # Only this file leaves the cache; other users of the machine keep theirs.
    testbed.call("dd", f"if={volume.point}/data", "iflag=nocache", "count=0")
    if "hits" in load:
        with open(volume.point / "data", "rb") as file:
            file.read(HOT_BYTES)
    live = None
    if watch == "--live":
        live = stage.Live.watch(program, volume.point)
    elif watch:
        live = stage.Live.recording(program, volume.point, trace, "--exact")
    before_pages = volume.sectors_read() // 8
    before = live.cpu_seconds() if live else 0
    job = read_with_fio(volume, group, load, seconds)
    cpu = live.cpu_seconds() - before if live else 0
    pages = volume.sectors_read() // 8 - before_pages
    records, said = live.end() if live else ([], "")
    total = records[0]["total"] if records else {}
    elapsed = job["read"]["runtime"] / 1000
    return {
        "load": load, "rate": RATE if seconds else 0, "watch": watch, "seconds": f"{elapsed:.3f}", "reads": job["read"]["total_ios"],
        "reads_s": f"{job['read']['iops']:.0f}",
        "reader_cpu_s": f"{(job['usr_cpu'] + job['sys_cpu']) / 100 * job['job_runtime'] / 1000:.4f}",
        "watch_cpu_s": f"{cpu:.4f}", "device_pages": pages, "demanded_pages": total.get("demanded_pages", ""),
        "ahead_pages": total.get("ahead_pages", ""), "lost_records": records[0]["lost_records"] if records else said.count("LOST"),
    }


def main():
    parser = stage.arguments("cost", __doc__, HERE / "cost.csv")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--loads", nargs="+", default=list(LOADS))
    args = parser.parse_args()
    testbed.begin()
    watches = ["", "--live", "record --exact"]
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, testbed.memory_group(MEMORY_BYTES) as group, \
            testbed.file_system(Path(folder) / "image", FILE_BYTES * 5 // 4, stage.MOUNT / "volume") as volume:
        with open(volume.point / "data", "wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
        for round_number in range(args.rounds):
            for load in args.loads:
                turn = round_number % len(watches)
                for seconds in (args.seconds, 0):
                    for watch in watches[turn:] + watches[:turn]:
                        row = measure(args.flashsift, volume, group, load, watch, seconds,
                                      Path(folder) / "trace.parquet")
                        rows.append({"round": round_number, **row})
                        print(*row.values(), sep="\t", file=sys.stderr, flush=True)
            write_dicts(args.o, FIELDS, rows)
    print(f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
