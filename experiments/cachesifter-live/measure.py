"""Run the same loads on each system in turn, and count at the block device."""

import argparse
import contextlib
import itertools
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from datetime import date
from hashlib import sha256
from pathlib import Path

from apps import processes, testbed
from apps.testbed import call, join
from common.pages import MIB
from common.program import output, records
from common.rows import write_json

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

POINTS = Path("/mnt/flashsift-live")
DEVICE_BYTES = 2 << 30
# The loads in which a script does not wait as a person does, and those in which it does.
TIMEOUT_S, PACED_TIMEOUT_S = 300, 3600
# The browser alone needs most of it.
PRESSURE_BYTES = 640 * MIB
SIFTERS = ("controller", "drop-all", "touch")
# The paper's system, if `run.sh` could train its models.
TRAINED = "cachesifter"
BUDGETS_MIB = (64, 16)
ARMS = ("ext4", "tmpfs", *(f"{kind}-{mib}" for mib in BUDGETS_MIB for kind in ("keep", *SIFTERS)))
ALL_ARMS = (*ARMS, *(f"{TRAINED}-{mib}" for mib in BUDGETS_MIB))
# The load, its first seed, and its arms; a judged load was not looked at before.
LOADS = {
    "chromium": (100, ("ext4", "tmpfs", "keep-64", "controller-64", "keep-16", "controller-16", "drop-all-16",
                       "touch-16", f"{TRAINED}-64", f"{TRAINED}-16")),
    "chromium-days": (150, ("ext4", "keep-16", "controller-16", "drop-all-16", "touch-16", f"{TRAINED}-16")),
    "chromium-people": (200, ("ext4", "keep-16", "controller-64", "controller-16", "drop-all-16", f"{TRAINED}-16")),
    "chromium-at-pace": (250, ("ext4", "keep-16", "controller-16", "drop-all-16", "touch-16")),
    "chromium-warm": (270, ("ext4", "keep-16", "controller-16", "drop-all-16", "touch-16")),
    "firefox": (300, ("ext4", "keep-16", "controller-16", "drop-all-16")),
    "firefox-days": (320, ("ext4", "keep-16", "controller-16", "drop-all-16", "touch-16")),
    "feed": (350, ("ext4", "tmpfs", "keep-16", "controller-16", "drop-all-16", "touch-16")),
    "pip": (400, ("ext4", "keep-16", "controller-16", "drop-all-16")),
    "punisher": (500, ARMS),
    "pressure": (600, ("ext4", "keep-64", "controller-64", "controller-16")),
}
# In a process of its own for each arm, all at the same time: see run.sh.
PACED = ("chromium-at-pace", "chromium-warm")
# They begin before they are counted.
WARM = ("chromium-days", "chromium-warm", "firefox-days")
SIMULATED = ("chromium", "chromium-days", "feed", "punisher")
NEEDS = {"chromium": "chromium", "chromium-at-pace": "chromium", "chromium-people": "chromium",
         "chromium-days": "chromium", "chromium-warm": "chromium", "firefox": "firefox-esr", "firefox-days": "firefox-esr", "pressure": "chromium"}


def patterns():
    """Options that let the sifter drop what the checked profiles name, at our directories."""
    options = []
    for name, at in (("chromium", "*/"), ("firefox", "*/firefox/")):
        profile = tomllib.loads((ROOT / f"crates/files/src/sift/profile/{name}.toml").read_text())
        for key in ("drop", "pin"):
            options += [(key, at + end if not end.startswith("*") else end) for end in profile[key]]
    return [*options, ("drop", "*/cache/*.entry"), ("drop", "*/images/*.0*")]


def droppable():
    return [text for key, text in patterns() if key == "drop"] + ["*/.cache/pip/http/*", "*/.cache/pip/wheels/*.whl"]


def sifter(kind, models):
    """A sifter with its models, which are one for each phase."""
    return f"{kind}:model={models[0]},model2={models[1]}" if kind == TRAINED else kind


class Mount:
    """flashsift's mount over a directory of the volume; a context manager that unmounts it."""

    def __init__(self, program, arm, backing, point, models, more=()):
        self._program, self.point, self._backing = program, point, backing
        self.kind, _, mib = arm.rpartition("-")
        self._words = ["--budget", f"{mib}MiB", *more]
        if self.kind != "keep":
            self._words += ["--sift", sifter(self.kind, models)]
            for key, text in patterns():
                self._words += [f"--{key}", text]

    def __enter__(self):
        self.point.mkdir(exist_ok=True)
        # The daemon would keep pipes open.
        call(self._program, "mount", self._backing, self.point, *self._words, stdout=subprocess.DEVNULL,
             stderr=subprocess.DEVNULL)
        words = [b"mount", bytes(self._backing), bytes(self.point)]
        self.pid = next(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
                        if set(words) <= set(path.read_bytes().split(b"\0")))
        return self

    def facts(self):
        """The daemon's processor time, its largest memory, and its status."""
        ticks = processes.ticks(processes.stat(self.pid))
        peak = next(line for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
        status = json.loads(output(self._program, "status", self.point, "--json"))
        keys = ("ram_bytes", "settled_bytes", "born", "settled", "born_settled", "never_written")
        return {"daemon_cpu_s": ticks / os.sysconf("SC_CLK_TCK"), "daemon_rss_bytes": int(peak.split()[1]) * 1024,
                "status": {key: status[key] for key in keys},
                **({"sift": status["sift"]} if status.get("sift") else {})}

    def __exit__(self, *error):
        with contextlib.suppress(*([RuntimeError] if error[0] else [])):
            call(self._program, "unmount", self.point)


class Probe:
    """Reads and writes 4 KiB at random places of the same file system, until `end`."""

    def __init__(self, volume, group, seed):
        self._process = subprocess.Popen(
            [sys.executable, "-B", HERE / "probe.py", volume.point / "probe", str(seed)],
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: join(group))

    def end(self):
        self._process.send_signal(signal.SIGTERM)
        return json.loads(self._process.communicate()[0])


class Bench:
    def __init__(self, options):
        self.options, self.images = options, options.images
        self.images.mkdir(parents=True, exist_ok=True)

    def run(self, load, arm, seed, more=()):
        """One run of a load on a fresh file system."""
        with testbed.device(self.images / f"live-{os.getpid()}.img", DEVICE_BYTES) as device:
            with contextlib.ExitStack() as group:
                limit = group.enter_context(testbed.memory_group(PRESSURE_BYTES)) if load == "pressure" else None
                with testbed.mounted(device, POINTS / f"sift-{os.getpid()}") as volume:
                    row, before = self._on(volume, load, arm, seed, limit, more)
            row["device_bytes"] = volume.bytes_written() - before[0]
            row["device_requests"] = volume.requests_written() - before[1]
        return {"load": load, "arm": arm, "seed": seed, **row}

    def _on(self, volume, load, arm, seed, limit, more):
        files, over = volume.point / "files", volume.point.parent / f"over-{os.getpid()}"
        files.mkdir()
        probe = None
        if limit:
            (volume.point / "probe").write_bytes(b"")
            call("fallocate", "-l", "512M", volume.point / "probe")
            call("dd", "if=/dev/zero", f"of={volume.point / 'probe'}", "bs=1M", "count=512", "conv=notrunc,fsync")
        over.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(over.rmdir)
            process = stack.enter_context(self._begun(load, files, seed, limit)) if load in WARM else None
            if process and process.stdout.readline() != "warm\n":
                raise RuntimeError(f"{load}: {process.communicate()[1].strip()[-1500:]}")
            volume.sync()
            before = volume.bytes_written(), volume.requests_written()
            mount = None
            if arm == "tmpfs":
                stack.enter_context(testbed.mounted("tmpfs", over, "tmpfs", "size=1g"))
                call("cp", "-a", f"{files}/.", over)
            elif arm != "ext4":
                mount = stack.enter_context(Mount(self.options.flashsift, arm, files, over, self.options.models, more))
                if limit:
                    (limit / "cgroup.procs").write_text(str(mount.pid))
            if process:
                # Before the mount.
                stack.enter_context(self._ending(process))
            if limit:
                probe = Probe(volume, limit, seed)
            began = time.monotonic()
            at = files if arm == "ext4" else over
            row = self._ended(load, process or stack.enter_context(self._begun(load, at, seed, limit)), at)
            row["wall_s"] = round(time.monotonic() - began, 2)
            if probe:
                row["probe"] = probe.end()
            if mount:
                row |= mount.facts()
            if arm == "tmpfs":
                call("cp", "-a", f"{over}/.", files)
        volume.sync()
        return row, before

    @staticmethod
    @contextlib.contextmanager
    def _ending(process):
        """Ends the process, and with it the programs that it started."""
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def _begun(self, load, directory, seed, limit):
        words = [sys.executable, "-B", HERE / "loads.py", load, directory, seed, self.options.scale]
        return self._ending(subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE, text=True, preexec_fn=lambda: join(limit)))

    @staticmethod
    def _ended(load, process, directory):
        out, err = process.communicate(f"{directory}\n", timeout=PACED_TIMEOUT_S if load in PACED else TIMEOUT_S)
        if process.returncode:
            raise RuntimeError(f"{load}: {err.strip()[-1500:]}")
        return json.loads(out.splitlines()[-1])

    def simulated(self, load, seed):
        """Yields what each sifter does in a simulation with the events of one dry run."""
        trace = self.images / f"{load}-{os.getpid()}.parquet"
        try:
            # A dry run drops nothing, and its verdict is on the very events of the recording.
            recorded = self.run(load, "controller-16", seed, ("--dry-run", "--record", trace))
            for mib, mounted in itertools.product(BUDGETS_MIB, (False, True)):
                # The mount has half of `--memory`.
                memory = ["--memory", f"{2 * mib}MiB", *(["--as-mounted"] if mounted else [])]
                words = [self.options.flashsift, "compare", trace, "--json", *memory]
                for kind in ("none", "keep", *SIFTERS, *([TRAINED] if self.options.models else [])):
                    words += ["--sift", sifter(kind, self.options.models)]
                for text in droppable():
                    words += ["--droppable", text]
                for record in records(*words):
                    yield {"load": load, "seed": seed, "budget_mib": mib, "as_mounted": mounted,
                           "device_bytes": recorded["device_bytes"],
                           "rehearsal": recorded["sift"]["rehearsal"], "record": record}
        finally:
            trace.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flashsift", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs=2, help="models of cachesifter, for both phases")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=[load for load in LOADS if load not in PACED])
    parser.add_argument("--arms", nargs="+", choices=ALL_ARMS, default=ALL_ARMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first round, which chooses its seed")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--quick", action="store_true", help="one round of shorter loads on fewer arms")
    options = parser.parse_args()
    options.scale, options.rounds = (0.4, 1) if options.quick else (1.0, options.rounds)
    arms = [arm for arm in options.arms if options.models or not arm.startswith(TRAINED)]
    quick = ("ext4", "keep-16", "controller-16", "drop-all-16")
    testbed.begin()
    bench, order = Bench(options), random.Random(options.seed)
    missing = [load for load in options.loads if load in NEEDS and not shutil.which(NEEDS[load])]
    for load in missing:
        print(f"{load}: {NEEDS[load]} is not installed; left out", file=sys.stderr)
    print(f"seed of the order: {options.seed}", file=sys.stderr)
    began = time.monotonic()
    with open(options.out / "runs.jsonl", "w") as runs, open(options.out / "simulated.jsonl", "w") as simulated:
        def note(file, row):
            file.write(json.dumps(row) + "\n")
            file.flush()

        for load in SIMULATED:
            if load in options.loads and load not in missing and (not options.quick or load == "punisher"):
                for row in bench.simulated(load, LOADS[load][0]):
                    note(simulated, row)
        for number in range(options.first, options.first + options.rounds):
            todo = [(load, arm) for load in options.loads if load not in missing for arm in LOADS[load][1]
                    if arm in arms and (not options.quick or arm in quick)]
            order.shuffle(todo)
            for load, arm in todo:
                seed = LOADS[load][0] + number
                try:
                    row = bench.run(load, arm, seed)
                except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                    row = {"load": load, "arm": arm, "seed": seed, "error": str(error)}
                note(runs, row)
                print(f"{time.monotonic() - began:6.0f} s  {load} {arm} {seed}: " +
                      (row.get("error") or f"{row['device_bytes'] / MIB:.1f} MiB to the device, "
                       f"{row['served_bytes'] / MIB:.1f} MiB served, {row['wall_s']:.0f} s"), file=sys.stderr)
    about = {"kernel": platform.release().split("-")[0], "cpus": os.cpu_count(), "date": date.today().isoformat(),
             "quick": options.quick, "seed": options.seed, "rounds": options.rounds,
             "minutes": round((time.monotonic() - began) / 60, 1), "missing": missing,
             "models": [sha256(model.read_bytes()).hexdigest()[:16] for model in options.models or ()],
             "flashsift": output(options.flashsift, "--version").strip()}
    write_json(options.out / "machine.json", about)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
