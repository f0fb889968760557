"""A minimal DevTools client: JSON messages, NUL-terminated, over two pipes.

Chromium speaks this on descriptors 3 (in) and 4 (out) when started with
--remote-debugging-pipe, which needs no port and no web socket.
"""

import collections
import fcntl
import json
import os
import select
import time

from .run import WorkloadError


class DevToolsError(WorkloadError):
    pass


class DevTools:
    @classmethod
    def launch(cls, begin, *command, **options):
        """Start Chromium by `begin(*command, **options)`. Returns the process, and its client."""
        # Chromium reads commands on descriptor 3 and answers on 4.
        theirs_in, write = _pipe()
        read, theirs_out = _pipe()
        wire = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        process = begin("bash", "-c", wire, "bash", *command,
                        pass_fds=(theirs_in, theirs_out), **options)
        os.close(theirs_in)
        os.close(theirs_out)
        return process, cls(write, read)

    def __init__(self, write_fd, read_fd):
        self._write_fd = write_fd
        self._read_fd = read_fd
        self._buffer = b""
        self._last_id = 0
        self._events = collections.deque(maxlen=1000)

    def call(self, method, params=None, session=None, timeout=180):
        """Send one command and return its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write_fd, data):]
        deadline = time.monotonic() + timeout
        while True:
            reply = self._receive(deadline, method)
            if reply.get("id") == self._last_id:
                if "error" in reply:
                    raise DevToolsError(f"{method}: {reply['error'].get('message')}")
                return reply["result"]
            self._events.append(reply)

    def close(self):
        os.close(self._write_fd)
        os.close(self._read_fd)

    def forget_events(self):
        self._events.clear()

    def wait_event(self, wanted, timeout):
        """Return the first event for which wanted(event) holds, or None."""
        deadline = time.monotonic() + timeout
        while True:
            while self._events:
                event = self._events.popleft()
                if wanted(event):
                    return event
            try:
                self._events.append(self._receive(deadline, "event"))
            except TimeoutError:
                return None

    def pause(self, seconds):
        """Think for a while, but keep emptying the pipe: a full one would
        stall the browser."""
        self.wait_event(lambda event: False, seconds)

    def _receive(self, deadline, what):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read_fd], [], [], left)[0]:
                raise TimeoutError(f"no answer from the browser: {what}")
            chunk = os.read(self._read_fd, 1 << 16)
            if not chunk:
                raise DevToolsError("the browser closed its DevTools pipe")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def _pipe():
    """Ends of a pipe with high numbers, out of the way of 3 and 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64))
        os.close(end)
    return ends
