"""A server of downloads, from memory on 127.0.0.1, and curl that downloads them."""

import email.utils
import http.server
import threading


class Server(http.server.ThreadingHTTPServer):
    """Answers GET with `answer(host, path, headers)` -> (status, headers, body).

    A context manager; `origin` is its address. Requests are noted in the run's log, and
    dated by its calendar.
    """

    daemon_threads = True
    # A browser opens many connections at once.
    request_queue_size = 64

    def __init__(self, run, answer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.run = run
        self.answer = answer
        self.port = self.server_address[1]
        self.origin = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
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
        self.server.run.requests.note("GET", url, status, sent, conditional)

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.server.run.now() if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_):
        pass


class Downloads:
    """Fetches with curl, several at a time, from a Server of `body(path)`."""

    PARALLEL = 6

    def __init__(self, run, body):
        self._run = run
        self._server = Server(run, lambda host, path, headers: (200, {}, body(path)))

    def __enter__(self):
        self._server.__enter__()
        return self

    def __exit__(self, *error):
        self._server.__exit__(*error)

    def fetch(self, wanted):
        """Download each (path on the server, file); the file's folder must exist."""
        lines = "".join(f'url = "{self._server.origin}{path}"\noutput = "{file}"\n' for path, file in wanted)
        self._run.call(
            "curl", "--disable", "--silent", "--show-error", "--fail",
            "--parallel", "--parallel-immediate", "--parallel-max", self.PARALLEL, "--config", "-",
            input=lines,
        )
