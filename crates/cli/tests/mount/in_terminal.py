"""Runs a program in a terminal of 80 columns and 24 rows, and ends it by a key or a signal once it
has drawn. Prints `restored` if the terminal is then as it was before.

    in_terminal.py END PROGRAM [ARGUMENT]...
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios


def main() -> None:
    end, *command = sys.argv[1:]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    # It reads the terminal until all is drawn: the last line of the frame has the keys.
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs,
                               start_new_session=True)
    signal.alarm(120)
    drawn = b""
    while b"sort" not in drawn or b"quit" not in drawn:
        drawn += os.read(ours, 4096)
    assert b"\x1b[?1049h" in drawn, f"no alternate screen: {drawn!r}"
    during = termios.tcgetattr(theirs)
    assert not during[3] & termios.ECHO, "keys are echoed while it runs"
    if end.startswith("SIG"):
        number = getattr(signal, end)
        program.send_signal(number)
        expected = -number
    else:
        os.write(ours, end.encode())
        expected = 0
    status = program.wait()
    os.set_blocking(ours, False)
    try:
        while part := os.read(ours, 4096):
            drawn += part
    except BlockingIOError:
        pass
    assert status == expected, f"it ended with {status}: {drawn!r}"
    assert drawn.rstrip().endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in drawn.split(b"\x1b[?1049h")[-1], \
        f"the alternate screen stays: {drawn!r}"
    assert b"\x1b[?25h" in drawn.split(b"\x1b[?25l")[-1], f"the cursor stays hidden: {drawn!r}"
    after = termios.tcgetattr(theirs)
    assert after == before, f"the settings of the terminal differ: {after} and {before}"
    print("restored")


main()
