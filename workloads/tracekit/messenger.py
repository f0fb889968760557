"""The sqlite3 command-line program as the storage of a messenger app."""

import os
import random
import select
import time

from .strace import SetupError, TracedProcess, make_pipe, version_of

PROGRAMS = ("sqlite3",)
# An empty start-up file: the user's own must not change the recording.
SQLITE = "sqlite3 -batch -init /dev/null"
MEAN_PAUSE_SECONDS = 0.35
ANSWER_TIMEOUT = 60

# One database and one sqlite3 process each, as (name, journal mode,
# synchronous).  The small WAL checkpoint interval makes checkpoints happen
# many times within minutes, as apps on phones set it.
DATABASES = (
    ("messages", "WAL", "NORMAL"),
    ("contacts", "DELETE", "FULL"),
    ("attachments", "TRUNCATE", "FULL"),
)
WAL_CHECKPOINT_PAGES = 100

SCHEMAS = {
    "messages": """
CREATE TABLE message(id INTEGER PRIMARY KEY, chat INTEGER NOT NULL, sender INTEGER NOT NULL,
  sent INTEGER NOT NULL, unread INTEGER NOT NULL DEFAULT 1, body TEXT NOT NULL);
CREATE INDEX message_by_chat ON message(chat, sent);
CREATE INDEX message_unread ON message(chat) WHERE unread;
""",
    "contacts": """
CREATE TABLE contact(id INTEGER PRIMARY KEY, name TEXT NOT NULL, seen INTEGER, avatar BLOB);
CREATE TABLE draft(chat INTEGER PRIMARY KEY, body TEXT);
CREATE INDEX contact_by_name ON contact(name);
""",
    "attachments": """
CREATE TABLE attachment(id INTEGER PRIMARY KEY, message INTEGER NOT NULL, kind TEXT, data BLOB);
CREATE INDEX attachment_by_message ON attachment(message);
""",
}

CHATS = 40
# More than fits sqlite3's own 2 MB cache, so that searches read the file.
HISTORY_MESSAGES = 30000
HISTORY_ATTACHMENTS = 60
WORDS = (
    "the train leaves soon and we meet at station near old bridge bring your "
    "umbrella rain later dinner tonight maybe pasta or soup call me when home "
    "photo from garden looks great thanks happy birthday see you tomorrow ok "
    "where are tickets game starts seven good morning work late again sorry"
).split()


def versions():
    return {"sqlite3": version_of("sqlite3", "--version")}


def run(workdir, home, raw_trace, seed, seconds):
    """Chat for about `seconds`; returns facts for the summary."""
    # Descriptors 3, 4, 5 are the inputs and 6, 7, 8 the outputs of the three
    # processes; one strace sees them all, on one clock.
    shell_lines = []
    descriptors, ours = {}, {}
    for index, (name, _, _) in enumerate(DATABASES):
        their_read, our_write = make_pipe()
        our_read, their_write = make_pipe()
        descriptors[3 + index], descriptors[6 + index] = their_read, their_write
        ours[name] = (our_write, our_read)
        shell_lines.append(f"{SQLITE} {name}.db <&{3 + index} >&{6 + index} &")
    command = ["/bin/sh", "-c", " ".join(shell_lines) + " wait"]
    traced = None
    try:
        traced = TracedProcess(
            command, raw_trace, home, workdir, workdir / "sqlite3.log", descriptors
        )
        for fd in descriptors.values():
            os.close(fd)
        shells = {name: _Shell(name, *fds) for name, fds in ours.items()}
        app = _Messenger(shells, random.Random(f"messenger {seed}"))
        try:
            app.create()
            app.use(time.monotonic() + seconds)
        except (TimeoutError, BrokenPipeError) as error:
            raise SetupError(f"{error}\nlast lines of sqlite3:\n{traced.log_tail()}") from error
        for fds in ours.values():
            os.close(fds[0])  # end of input: sqlite3 closes its database
        traced.wait(60)
        if traced.log_tail():
            raise SetupError(f"sqlite3 complained:\n{traced.log_tail()}")
    finally:
        if traced:
            traced.kill()
    modes = ", ".join(f"{name} {mode}/{sync}" for name, mode, sync in DATABASES)
    return {"command": command[-1], "databases": modes, "actions": app.summary()}


class _Shell:
    """One long-lived sqlite3 process behind two pipes."""

    def __init__(self, name, write_fd, read_fd):
        self.name = name
        self._write_fd = write_fd
        self._read_fd = read_fd
        self._batches = 0

    def do(self, sql):
        """Run SQL and wait until sqlite3 has finished with it."""
        self._batches += 1
        marker = f"<done {self._batches}>\n".encode()
        data = f"{sql}\nSELECT '{marker.decode().strip()}';\n".encode()
        answer = b""
        while data:
            # Read while writing: with both pipes full each side would wait.
            answer += self._read(0)
            _, writable, _ = select.select([self._read_fd], [self._write_fd], [], ANSWER_TIMEOUT)
            if writable:
                # At most PIPE_BUF bytes are sure not to block.
                data = data[os.write(self._write_fd, data[:select.PIPE_BUF]):]
        while not answer.endswith(marker):
            chunk = self._read(ANSWER_TIMEOUT)
            if not chunk:
                raise TimeoutError(f"no answer from sqlite3 on {self.name}.db")
            answer += chunk

    def _read(self, timeout):
        if select.select([self._read_fd], [], [], timeout)[0]:
            return os.read(self._read_fd, 1 << 16)
        return b""


class _Messenger:
    """What the app does; every action is one or more small transactions."""

    ACTIONS = {  # name -> weight
        "receive": 34,
        "send": 16,
        "open_chat": 18,
        "draft": 8,
        "attach": 8,
        "view_attachment": 5,
        "contact_seen": 5,
        "search": 4,
        "delete_old": 2,
    }

    def __init__(self, shells, rng):
        self._shells = shells
        self._rng = rng
        self._next_message = 1
        self._next_attachment = 1
        self._clock = 1_700_000_000
        self._counts = dict.fromkeys(self.ACTIONS, 0)

    def summary(self):
        return ", ".join(f"{name} {count}" for name, count in self._counts.items())

    def create(self):
        """Set up the databases and load the history, as after a new login."""
        for name, mode, sync in DATABASES:
            self._shells[name].do(
                f"PRAGMA journal_mode={mode}; PRAGMA synchronous={sync};"
                f"PRAGMA wal_autocheckpoint={WAL_CHECKPOINT_PAGES};" + SCHEMAS[name]
            )
        for _ in range(0, HISTORY_MESSAGES, 500):
            rows = "".join(self._message_sql(unread=0) for _ in range(500))
            self._shells["messages"].do(f"BEGIN;{rows}COMMIT;")
        contacts = "".join(
            f"INSERT INTO contact VALUES({i},'{self._text(2)}',0,"
            f"randomblob({self._blob_size(6000)}));"
            for i in range(1, CHATS + 1)
        )
        self._shells["contacts"].do(f"BEGIN;{contacts}COMMIT;")
        for _ in range(0, HISTORY_ATTACHMENTS, 10):
            rows = "".join(self._attachment_sql() for _ in range(10))
            self._shells["attachments"].do(f"BEGIN;{rows}COMMIT;")

    def use(self, deadline):
        names, weights = zip(*self.ACTIONS.items())
        while time.monotonic() < deadline:
            time.sleep(min(self._rng.expovariate(1 / MEAN_PAUSE_SECONDS), 5))
            action = self._rng.choices(names, weights)[0]
            getattr(self, "_" + action)()
            self._counts[action] += 1

    def _text(self, words):
        return " ".join(self._rng.choices(WORDS, k=words))

    def _chat(self):
        # A few chats get most of the traffic.
        return min(int(self._rng.paretovariate(0.8)), CHATS)

    def _blob_size(self, median):
        return int(min(max(self._rng.lognormvariate(0, 0.9) * median, 1000), 60000))

    def _message_sql(self, unread):
        number, self._next_message = self._next_message, self._next_message + 1
        self._clock += self._rng.randint(1, 300)
        chat = self._chat()
        words = 1 + int(self._rng.lognormvariate(2.3, 0.8))
        return (
            f"INSERT INTO message VALUES({number},{chat},{chat},{self._clock},{unread},"
            f"'{self._text(words)}');"
        )

    def _attachment_sql(self):
        number, self._next_attachment = self._next_attachment, self._next_attachment + 1
        fill = "randomblob" if self._rng.random() < 0.8 else "zeroblob"
        return (
            f"INSERT INTO attachment VALUES({number},{self._next_message - 1},"
            f"'photo',{fill}({self._blob_size(14000)}));"
        )

    def _receive(self):
        rows = "".join(self._message_sql(unread=1) for _ in range(self._rng.choice([1, 1, 1, 2, 4])))
        self._shells["messages"].do(f"BEGIN;{rows}COMMIT;")

    def _send(self):
        self._shells["messages"].do(self._message_sql(unread=0))
        self._shells["contacts"].do(f"DELETE FROM draft WHERE chat={self._chat()};")

    def _open_chat(self):
        chat = self._chat()
        self._shells["messages"].do(
            f"SELECT count(body) FROM (SELECT body FROM message WHERE chat={chat} "
            f"ORDER BY sent DESC LIMIT 40);"
            f"UPDATE message SET unread=0 WHERE chat={chat} AND unread;"
        )

    def _draft(self):
        self._shells["contacts"].do(
            f"INSERT OR REPLACE INTO draft VALUES({self._chat()},'{self._text(6)}');"
        )

    def _attach(self):
        self._shells["messages"].do(self._message_sql(unread=0))
        self._shells["attachments"].do(self._attachment_sql())

    def _view_attachment(self):
        number = self._rng.randint(1, self._next_attachment - 1)
        self._shells["attachments"].do(f"SELECT length(hex(data)) FROM attachment WHERE id={number};")

    def _contact_seen(self):
        self._shells["contacts"].do(
            f"UPDATE contact SET seen={self._clock} WHERE id={self._chat()};"
        )

    def _search(self):
        self._shells["messages"].do(
            f"SELECT count(*) FROM message WHERE body LIKE '%{self._text(2)}%';"
        )

    def _delete_old(self):
        self._shells["messages"].do(
            "DELETE FROM message WHERE id IN (SELECT id FROM message ORDER BY id LIMIT 30);"
        )
        self._shells["attachments"].do(
            "DELETE FROM attachment WHERE id IN (SELECT id FROM attachment ORDER BY id LIMIT 2);"
        )
