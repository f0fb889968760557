"""A server on 127.0.0.1, from memory, and curl that downloads from one."""

import email.utils
import hashlib
import http.server
import threading
import time


class Server(http.server.ThreadingHTTPServer):
    """Answers GET with `answer(host, path, headers)` -> (status, headers, body), until `close`.

    `origin` is its address. `note(method, url, status, bytes of the body, conditional)` is called
    after each answer; `now()` dates them.
    """

    daemon_threads = True
    # A browser opens many connections at once.
    request_queue_size = 64

    def __init__(self, answer, note=lambda *request: None, now=time.time):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.note, self.now = answer, note, now
        self.port = self.server_address[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @classmethod
    def of(cls, run, answer):
        """One whose requests are in the run's log, and that has the run's calendar."""
        return cls(answer, run.requests.note, run.now)

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a program drops connections when it no longer wants the rest


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive, as real servers do
    # Header and body leave in one piece: two small writes would wait for each other's ACK.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        host = self.headers.get("Host", "").partition(":")[0]
        status, headers, body = self.server.answer(host, self.path, self.headers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = 0
        if status != 304:
            self.wfile.write(body)
            sent = len(body)
        self.wfile.flush()
        conditional = "If-None-Match" in self.headers or "If-Modified-Since" in self.headers
        url = f"http://{self.headers.get('Host', '')}{self.path}"
        self.server.note(self.command, url, status, sent, conditional)

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.server.now() if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_):
        pass


def tagged(body, headers, asked):
    """The whole body, or `304` if the program has it already, by a tag that follows from it."""
    headers = {**headers, "ETag": f'"{hashlib.sha256(body).hexdigest()[:16]}"'}
    return (304, headers, b"") if asked.get("If-None-Match") == headers["ETag"] else (200, headers, body)


class Downloads:
    """Fetches with curl, several at a time, from a Server of `body(path)`."""

    PARALLEL = 6

    def __init__(self, run, body):
        self._run = run
        self._server = Server.of(run, lambda host, path, headers: (200, {}, body(path)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()

    def fetch(self, wanted):
        """Download each (path on the server, file); the file's folder must exist."""
        lines = "".join(f'url = "{self._server.origin}{path}"\noutput = "{file}"\n' for path, file in wanted)
        self._run.call(
            "curl", "--disable", "--silent", "--show-error", "--fail",
            "--parallel", "--parallel-immediate", "--parallel-max", self.PARALLEL, "--config", "-",
            input=lines,
        )
