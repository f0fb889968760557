"""A messenger app, its storage kept by the sqlite3 program.

Three databases, one in each journal mode: messages in a WAL, contacts with a
rollback journal that is deleted, attachments with one that is truncated.
"""

from . import run as runs
from . import sqlite
from .content import sentence
from .sqlite import Database

PROGRAMS = ("sqlite3",)
MEAN_PAUSE_S = 0.45

# name -> journal mode, synchronous, schema
DATABASES = {
    "messages": ("WAL", "NORMAL", """
CREATE TABLE message(id INTEGER PRIMARY KEY, chat INTEGER NOT NULL, sender INTEGER NOT NULL,
  sent INTEGER NOT NULL, unread INTEGER NOT NULL DEFAULT 1, body TEXT NOT NULL);
CREATE INDEX message_by_chat ON message(chat, sent);
CREATE INDEX message_unread ON message(chat) WHERE unread;
"""),
    "contacts": ("DELETE", "FULL", """
CREATE TABLE contact(id INTEGER PRIMARY KEY, name TEXT NOT NULL, seen INTEGER, avatar BLOB);
CREATE TABLE draft(chat INTEGER PRIMARY KEY, body TEXT);
CREATE INDEX contact_by_name ON contact(name);
"""),
    "attachments": ("TRUNCATE", "FULL", """
CREATE TABLE attachment(id INTEGER PRIMARY KEY, message INTEGER NOT NULL, kind TEXT, data BLOB);
CREATE INDEX attachment_by_message ON attachment(message);
"""),
}

CHATS = 40
# Larger than sqlite3's own 2 MB cache, so that searches read the file.
HISTORY_MESSAGES = 40000
HISTORY_ATTACHMENTS = 300

ACTIONS = {  # name -> weight
    "receive": 34,
    "send": 16,
    "open_chat": 18,
    "draft": 8,
    "attach": 8,
    "view_attachment": 8,
    "contact_seen": 5,
    "search": 2,
    "delete_old": 2,
    "leave": 1,
}


def main():
    runs.main("messenger", __doc__, PROGRAMS, play, minutes=10, add_arguments=sqlite.add_arguments)


def play(run):
    if run.options.sql or run.options.load:
        return sqlite.play_files(run)
    app = _Messenger(run)
    app.create()
    rng = run.random("actions")
    while not run.over():
        run.think(min(rng.expovariate(1 / MEAN_PAUSE_S), 5))
        action = rng.choices(list(ACTIONS), ACTIONS.values())[0]
        run.did(action, getattr(app, "_" + action)())
    app.close()


class _Messenger:
    """The app's actions; each is one or more small transactions."""

    def __init__(self, run):
        self._run = run
        self._rng = run.random("app")
        self._next_message = 1
        self._next_attachment = 1
        self._clock = 1_700_000_000
        self._databases = {
            name: Database(run, f"{name}.db", *how) for name, how in DATABASES.items()
        }

    def close(self):
        for database in self._databases.values():
            database.close()

    def create(self):
        """Load the history, as after a new login."""
        for _ in range(0, HISTORY_MESSAGES, 500):
            rows = "".join(self._message_sql(unread=0) for _ in range(500))
            self._do("messages", f"BEGIN;{rows}COMMIT;")
        contacts = "".join(
            f"INSERT INTO contact VALUES({i},'{sentence(self._rng, 2)}',0,"
            f"randomblob({self._blob_size(6000)}));"
            for i in range(1, CHATS + 1)
        )
        self._do("contacts", f"BEGIN;{contacts}COMMIT;")
        for _ in range(0, HISTORY_ATTACHMENTS, 10):
            rows = "".join(self._attachment_sql() for _ in range(10))
            self._do("attachments", f"BEGIN;{rows}COMMIT;")

    def _do(self, name, sql):
        self._databases[name].do(sql)

    def _chat(self):
        # A few chats get most of the traffic.
        return min(int(self._rng.paretovariate(0.8)), CHATS)

    def _blob_size(self, median):
        return int(min(max(self._rng.lognormvariate(0, 0.9) * median, 1000), 200000))

    def _message_sql(self, unread):
        number, self._next_message = self._next_message, self._next_message + 1
        self._clock += self._rng.randint(1, 300)
        chat = self._chat()
        words = 1 + int(self._rng.lognormvariate(2.3, 0.8))
        return (
            f"INSERT INTO message VALUES({number},{chat},{chat},{self._clock},{unread},"
            f"'{sentence(self._rng, words)}');"
        )

    def _attachment_sql(self):
        number, self._next_attachment = self._next_attachment, self._next_attachment + 1
        fill = "randomblob" if self._rng.random() < 0.8 else "zeroblob"
        return (
            f"INSERT INTO attachment VALUES({number},{self._next_message - 1},"
            f"'photo',{fill}({self._blob_size(24000)}));"
        )

    def _receive(self):
        count = self._rng.choice([1, 1, 1, 2, 4])
        rows = "".join(self._message_sql(unread=1) for _ in range(count))
        self._do("messages", f"BEGIN;{rows}COMMIT;")
        return f"{count} messages"

    def _send(self):
        self._do("messages", self._message_sql(unread=0))
        self._do("contacts", f"DELETE FROM draft WHERE chat={self._chat()};")
        return ""

    def _open_chat(self):
        chat = self._chat()
        self._do("messages",
            f"SELECT count(body) FROM (SELECT body FROM message WHERE chat={chat} "
            f"ORDER BY sent DESC LIMIT 40);"
            f"UPDATE message SET unread=0 WHERE chat={chat} AND unread;")
        return f"chat {chat}"

    def _draft(self):
        chat = self._chat()
        self._do("contacts", f"INSERT OR REPLACE INTO draft VALUES({chat},'{sentence(self._rng, 6)}');")
        return f"chat {chat}"

    def _attach(self):
        self._do("messages", self._message_sql(unread=0))
        self._do("attachments", self._attachment_sql())
        return ""

    def _view_attachment(self):
        number = self._rng.randint(1, self._next_attachment - 1)
        self._do("attachments", f"SELECT length(hex(data)) FROM attachment WHERE id={number};")
        return f"attachment {number}"

    def _contact_seen(self):
        chat = self._chat()
        self._do("contacts", f"UPDATE contact SET seen={self._clock} WHERE id={chat};")
        return f"chat {chat}"

    def _search(self):
        words = sentence(self._rng, 2)
        self._do("messages", f"SELECT count(*) FROM message WHERE body LIKE '%{words}%';")
        return words

    def _delete_old(self):
        self._do("messages",
            "DELETE FROM message WHERE id IN (SELECT id FROM message ORDER BY id LIMIT 30);")
        self._do("attachments",
            "DELETE FROM attachment WHERE id IN (SELECT id FROM attachment ORDER BY id LIMIT 2);")
        return ""

    def _leave(self):
        """The app goes to the background, and comes back."""
        for database in self._databases.values():
            database.close()
        self._run.think(self._rng.uniform(3, 8))
        for database in self._databases.values():
            database.open()
        return ""
