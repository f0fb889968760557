"""The bytes of /var/log of a machine, from boot to shutdown, on ext4 and on a mount."""

import argparse
import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from apps import testbed
from common.machines import remedies, unshared
from common.pages import markdown
from common.program import output, parser

HERE = Path(__file__).resolve().parent
DEVICE_BYTES = 512 << 20
MINUTES = 60
ARMS = ("ext4", "ext4 again", "mount")
# The load, by what it does in a minute. A rotation is what cron does once a day.
MESSAGES, REQUESTS, LINES = 20, 60, 6
PREPARE = """
mkdir -p /var/log/journal /var/log/nginx /var/lib/logrotate /etc/systemd/journald.conf.d
printf '[Journal]\\nForwardToSyslog=yes\\n' > /etc/systemd/journald.conf.d/syslog.conf
printf 'server { listen 8081; location / { return 200 yes; } }' > /etc/nginx/conf.d/probe.conf
# A container's systemd cannot signal the processes of a unit on all machines.
printf '#!/bin/sh\nkill -HUP $(pidof rsyslogd)\n' > /usr/lib/rsyslog/rsyslog-rotate
# An image for containers may forbid all actions of services, with them nginx's new log.
rm -f /usr/sbin/policy-rc.d
systemctl enable rsyslog nginx
"""
LOAD = """
systemctl is-active --quiet rsyslog nginx systemd-journald
each() {
    local pause=$1 n=0; shift
    while [ $(date +%s) -lt $end ]; do n=$(( n + 1 )); "$@"; sleep $pause; done
}
message() { logger "a message of the load with its number, $n"; }
request() { curl -sS http://127.0.0.1:8081/page-$n > /dev/null; }
line() { echo "$(date) a line of an application, $n" >> /var/log/application.log; }
rotate() { logrotate -f /etc/logrotate.d/rsyslog /etc/logrotate.d/nginx; }
begun=$(date +%s); end=$(( begun + seconds ))
each MESSAGE message & messages=$!; each REQUEST request & requests=$!; each LINE line & lines=$!
sleep $(( seconds / 2 )); rotate
holds() { "$@" || { echo "this fails: $*" >&2; exit 1; }; }
for job in $messages $requests $lines; do holds wait $job; done
holds journalctl --verify -q
journalctl -q -o cat --since -1min > /tmp/last
for log in /tmp/last /var/log/syslog; do holds grep -q 'a message of the load' $log; done
holds grep -q page- /var/log/nginx/access.log
holds test -s /var/log/syslog.1; holds test -s /var/log/nginx/access.log.1
""".replace("MESSAGE message", f"{60 / MESSAGES} message").replace("REQUEST request", f"{60 / REQUESTS} request").replace(
    "LINE line", f"{60 / LINES} line")
TEXT = """# /var/log of a machine

{cpus} processors, Linux {kernel}, {version}, {day}. By `experiments/var-log/run.sh`.

Three machines in containers with systemd run side by side, each with `/var/log` on an ext4 of its
own. On one of them, `flashsift mount --enable --system /var/log{options}` was run before. Each boots, logs
for {minutes} minutes and is shut down. In a minute, {messages} messages reach journald and rsyslog, nginx
answers {requests} requests, and an application opens its log {lines} times for a line. After half of the
time, logrotate rotates the logs of rsyslog and nginx. *Written*: what the ext4's device was given
from boot to its `umount`.

{table}
"""


class Log:
    """A machine whose /var/log is an ext4 of its own."""

    def __init__(self, folder, undo, arm, options):
        folder.mkdir()
        self._undo, self._arm = undo, arm
        self.machine = remedies.Machine(folder, undo)
        self._device = undo.enter_context(testbed.device(folder / "log-image", DEVICE_BYTES, make=()))
        self._point = folder / "log"
        # Without lost+found, as a directory of the root has it.
        self._mount = contextlib.ExitStack()
        undo.push(self._mount)
        self.volume = self._mount_log()
        (self._point / "files").mkdir()
        self.machine.options += [f"--bind={self._point}/files:/var/log", "--bind=/dev/fuse", "--capability=all",
                                 f"--bind-ro={self._device}"]
        self.machine.boot()
        self.machine.install(["rsyslog", "nginx", "logrotate"])
        self.machine.run(PREPARE)
        if arm == "mount":
            self.machine.run(f"flashsift mount --enable --system /var/log {' '.join(options)}")
        self.machine.shut_down()
        self._mount.close()

    def _mount_log(self):
        return self._mount.enter_context(testbed.mounted(self._device, self._point, options=testbed.UNFILLED))

    def measured(self, seconds):
        """Bytes that the device was given: during the boot, the load and the shutdown."""
        volume = self._mount_log()
        volume.sync()
        marks = [volume.bytes_written()]
        self.machine.boot()
        kind = self.machine.run("findmnt -n -o FSTYPE --target /var/log | tail -1")
        if (kind == "fuse.flashsift") != (self._arm == "mount"):
            raise RuntimeError(f"/var/log of {self._arm} is {kind}")
        marks.append(volume.bytes_written())
        self.machine.run(LOAD, patience_s=seconds + remedies.PATIENCE_S, seconds=str(seconds))
        marks.append(volume.bytes_written())
        self.machine.shut_down()
        self._mount.close()
        marks.append(volume.bytes_written())
        return [end - begin for begin, end in zip(marks, marks[1:], strict=False)]


def measured(args):
    testbed.begin()
    with tempfile.TemporaryDirectory(dir="/run") as folder, contextlib.ExitStack() as undo:
        logs = [Log(Path(folder) / arm.replace(" ", "-"), undo, arm, args.options) for arm in ARMS]
        with ThreadPoolExecutor(len(logs)) as pool:
            found = list(pool.map(lambda log: log.measured(60 * args.minutes), logs))
    stock = sum(found[0])
    rows = [[arm, *(f"{part / 1024:,.0f}" for part in parts), f"{sum(parts) / 1024:,.0f}", f"{sum(parts) / stock:.2f}"]
            for arm, parts in zip(ARMS, found, strict=True)]
    return TEXT.format(
        cpus=os.cpu_count(),
        kernel=platform.release().split("-")[0],
        version=output(args.flashsift, "--version").strip(),
        day=date.today(),
        options="".join(f" {option}" for option in args.options),
        minutes=args.minutes,
        messages=MESSAGES,
        requests=REQUESTS,
        lines=LINES,
        table=markdown("KiB|boot|load|shutdown|written|of ext4's", rows),
    )


def main():
    made = parser(__doc__)
    made.add_argument("--minutes", type=int, default=MINUTES)
    made.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("options", nargs=argparse.REMAINDER)
    args = made.parse_args()
    if args.inside:
        remedies.FLASHSIFT = args.flashsift
        print(measured(args), end="")
        return
    words = [sys.executable, "-B", __file__, "--inside", *sys.argv[1:]]
    with remedies.groups_removed():
        done = subprocess.run([str(word) for word in unshared(*words)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    if args.options or args.minutes != MINUTES:
        print(done.stdout, end="")
    else:
        (HERE / "RESULTS.md").write_text(done.stdout)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (RuntimeError, remedies.Failure, remedies.NoContainer) as error:
        sys.exit(f"run.sh: {error}")
