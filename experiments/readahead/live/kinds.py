"""Try `tune readahead --live` on this kernel's file systems, and on those of Debian's in guests.

On each, a program reads a file in order, another one at random places, and a third one through a
mapping. The pages that the watch counts are compared with those that the device reads. Writes
kinds.json.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import stage
from apps import testbed
from apps.testbed import call
from common.program import run
from common.rows import write_json

HERE = Path(__file__).resolve().parent
FILE_PAGES = 16_384
PLACES = 400
READER = f"""
PLACES = {PLACES}
""" + """
import mmap, os, random, sys
kind, path = sys.argv[1:]
pages = os.stat(path).st_size // 4096
file = os.open(path, os.O_RDONLY)
places = random.Random(3).sample(range(pages // 2), PLACES)
if kind == "sequential":
    for n in range(pages // 2):
        os.pread(file, 4096, 4096 * n)
elif kind == "random":
    for n in places:
        os.pread(file, 4096, 4096 * 2 * n)
else:
    map = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    for n in places:
        map[4096 * 2 * n]
"""
READERS = ("sequential", "random", "mapped")


def watch(program, volume):
    """Watch the three readers. Return what is found."""
    live = stage.Live.watch(program, volume.point)
    before = volume.sectors_read()
    for reader in READERS:
        call("/usr/bin/python3", "-c", READER, reader, volume.point / reader)
    device_pages = (volume.sectors_read() - before) // 8
    (record,), said = live.end()
    files = {}
    for file in record["files"]:
        files[Path(file["name"]).name] = {key: value for key, value in file.items() if key != "name"}
    return {"total": record["total"], "files": files, "device_pages": device_pages,
            "lost_records": record["lost_records"], "said": said_of(said)}


def said_of(text):
    return [line for line in text.splitlines() if line.strip() and "watching for" not in line]


def fill(volume):
    for reader in READERS:
        (volume.point / reader).write_bytes(os.urandom(FILE_PAGES * 4096))


def here(program, folder, kind):
    point = stage.MOUNT / "volume"
    with testbed.device(folder / "image", 1 << 30, kind) as device:
        with testbed.mounted(device, point, kind) as volume:
            fill(volume)
        with testbed.mounted(device, point, kind) as volume:
            found = watch(program, volume)
        with testbed.mounted(device, point, kind) as volume:
            found["propose"] = propose(program, volume)
        return found


def propose(program, volume):
    """Return the proposal for the same readers, or the reason for none."""
    try:
        live = stage.Live.watch(program, volume.point, "--propose", recorders=1)
        for reader in READERS:
            call("/usr/bin/python3", "-c", READER, reader, volume.point / reader)
        records, said = live.end()
    except RuntimeError as error:
        return {"failed": said_of(str(error).partition(": ")[2])}
    found = records[1]["readahead"]
    return {"proposed_kib": found.get("proposed_kib"), "lack": found.get("lack"), "said": said_of(said)}


def guest(program, version, kind):
    """Watch in a guest with Debian's kernel while a file is read there. Return what is found."""
    command = f"""
dd if=/dev/urandom of=/flash/data bs=1M count=16 status=none; sync
echo 1 > /proc/sys/vm/drop_caches
uname -r > /out/kernel
{program} tune readahead --live /flash --for 1h --json > /out/json 2> /out/said &
until [ ! -d /proc/$! ] || [ "$(cat /sys/kernel/tracing/instances/*/tracing_on 2> /dev/null)" = 1 ]; do sleep 0.2; done
cat /sys/block/mmcblk0/stat > /out/before
dd if=/flash/data of=/dev/null bs=4k status=none
cat /sys/block/mmcblk0/stat > /out/after
kill -INT $! 2> /dev/null
wait $!
echo $? > /out/ended
ls /sys/kernel/tracing/instances > /out/instances
"""
    with tempfile.TemporaryDirectory(prefix="live-") as out:
        out = Path(out)
        try:
            testbed.guest(testbed.kernel(version), kind, out, command, 1500, 1024)
        except RuntimeError as error:
            return {"refused": str(error)[-500:]}
        text = {name: (out / name).read_text() for name in ("kernel", "said", "json", "ended", "instances", "before",
                                                            "after")}
        sectors = [int(text[name].split()[2]) for name in ("before", "after")]
        record = json.loads(text["json"]) if text["json"].strip() else {}
        return {"kernel": text["kernel"].strip(), "status": int(text["ended"]), "said": said_of(text["said"]),
                "total": record.get("total"), "lost_records": record.get("lost_records"),
                "device_pages": (sectors[1] - sectors[0]) // 8, "instances": text["instances"].split()}


def main():
    parser = stage.arguments("kinds", __doc__, HERE / "kinds.json")
    parser.add_argument("--here", nargs="*", default=["ext4", "xfs", "btrfs"])
    parser.add_argument("--guests", nargs="*", default=["6.1/f2fs", "6.12/ext4", "6.12/f2fs"])
    args = parser.parse_args()
    testbed.begin()
    found = json.loads(args.o.read_text()) if args.o.exists() else {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for kind in args.here:
            found[f"{os.uname().release.split('-')[0]}/{kind}"] = here(args.flashsift, Path(folder), kind)
            write_json(args.o, found)
    for name in args.guests:
        found[f"Debian {name}"] = guest(args.flashsift, *name.split("/"))
        write_json(args.o, found)
    print(json.dumps(found, indent=1), file=sys.stderr)


if __name__ == "__main__":
    run(main)
