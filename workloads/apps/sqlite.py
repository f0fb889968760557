"""Databases kept by the real sqlite3 program, and files of SQL run through it."""

import lzma
import os
import re
import select
import subprocess
from pathlib import Path

from .run import WorkloadError

# An empty start-up file, as the user's own could change the actions.
COMMAND = ("sqlite3", "-batch", "-init", "/dev/null")
JOURNAL_MODES = ("DELETE", "TRUNCATE", "WAL")
ANSWER_TIMEOUT_S = 120
# Apps on phones checkpoint early; the default of 1000 pages is rarely reached in minutes.
WAL_CHECKPOINT_PAGES = 100


class Database:
    """One long-lived sqlite3 process on one file, as an app that has it open."""

    def __init__(self, run, name, journal, synchronous="FULL", schema=""):
        self.name = name
        self._settings = (
            f"PRAGMA journal_mode={journal}; PRAGMA synchronous={synchronous};"
            f"PRAGMA wal_autocheckpoint={WAL_CHECKPOINT_PAGES};"
        )
        self._run = run
        self._log = run.scratch / (name.replace("/", "-") + ".log")
        self._answers = 0
        self._process = None
        self.open()
        self.do(schema)

    def open(self):
        with open(self._log, "ab") as log:
            self._process = self._run.start(
                *COMMAND, self.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        self.do(self._settings)

    def do(self, sql):
        """Run SQL, wait until sqlite3 has finished with it, return the last it printed."""
        self._answers += 1
        marker = f"<done {self._answers}>\n"
        data = f"{sql}\nSELECT '{marker.strip()}';\n".encode()
        # A statement's own output may be long; only its end is of use.
        answer = b""
        try:
            while data:
                # Read while writing: with both pipes full each side would wait.
                answer = (answer + self._read(0))[-4096:]
                _, writable, _ = select.select([self._process.stdout], [self._process.stdin], [], ANSWER_TIMEOUT_S)
                if writable:
                    # At most PIPE_BUF bytes are sure not to block.
                    data = data[os.write(self._process.stdin.fileno(), data[: select.PIPE_BUF]):]
            while not answer.endswith(marker.encode()):
                chunk = self._read(ANSWER_TIMEOUT_S)
                if not chunk:
                    raise BrokenPipeError
                answer = (answer + chunk)[-4096:]
        except BrokenPipeError:
            raise WorkloadError(f"sqlite3 gave no answer on {self.name}: {self._complaint()}") from None
        return answer.decode(errors="replace").removesuffix(marker)

    def _read(self, timeout_s):
        if select.select([self._process.stdout], [], [], timeout_s)[0]:
            return os.read(self._process.stdout.fileno(), 1 << 16)
        return b""

    def close(self, tolerant=False):
        """As an app does that goes to the background: a WAL is checkpointed and deleted."""
        self._process.stdin.close()
        self._process.wait(ANSWER_TIMEOUT_S)
        self._process.stdout.close()
        if not tolerant and self.errors():
            raise WorkloadError(f"sqlite3 complained about {self.name}: {self._complaint()}")

    def errors(self):
        """How many statements failed."""
        return len(re.findall(r"^(?:Parse error|Runtime error|Error)\b", self._log.read_text(errors="replace"), re.M))

    def _complaint(self):
        return " ".join(self._log.read_text(errors="replace").splitlines()[-4:]) or "it said nothing"


def add_arguments(parser):
    parser.add_argument("--load", type=Path, nargs="+", metavar="FILE", default=[],
                        help="SQL to run first, without pauses (.xz is opened): schema and rows")
    parser.add_argument("--sql", type=Path, nargs="+", metavar="FILE", default=[],
                        help="SQL to run instead of the usual actions, a transaction at a time, spread over the "
                             "minutes; a line that begins a statement ends the one before, also without its ';'")
    parser.add_argument("--journal", choices=JOURNAL_MODES, default="TRUNCATE",
                        help="journal mode of the database for --sql (default TRUNCATE)")


def play_files(run):
    """Run the files of --load and --sql through sqlite3, into one database."""
    options = run.options
    missing = [path for path in (*options.load, *options.sql) if not path.is_file()]
    if missing:
        raise WorkloadError(f"no such file: {missing[0]}")
    source = Statements()
    loading = [text for path in options.load for text in source.read(path)]
    units = list(_transactions(text for path in options.sql for text in source.read(path)))
    database = Database(run, "statements.db", options.journal)
    database.do("\n".join(loading))
    rng = run.random("pauses")
    pauses = [rng.expovariate(1) for _ in units]
    scale = options.minutes * 60 / sum(pauses, start=0.0) if units else 0
    failed_loading = database.errors()
    for unit, pause in zip(units, pauses, strict=True):
        run.think(pause * scale)
        database.do("\n".join(unit))
        run.did("transaction" if len(unit) > 1 else "statement", unit[0].split(None, 1)[0].upper())
    run.facts["journal"] = options.journal
    run.facts["statements"] = {
        "loaded": len(loading),
        "run": sum(map(len, units)),
        "without_semicolon": source.without_semicolon,
        "left_out": source.left_out,
        "failed_loading": failed_loading,
        "failed": database.errors() - failed_loading,
    }
    database.close(tolerant=True)


class Statements:
    """Takes files of SQL apart into statements, each with its semicolon."""

    # Words that begin a statement, to distinguish it from the continuation of the last one.
    _BEGINS = re.compile(
        r"\s*(ALTER|ANALYZE|ATTACH|BEGIN|COMMIT|CREATE|DELETE|DETACH|DROP|END|EXPLAIN|INSERT|PRAGMA|REINDEX|RELEASE|"
        r"REPLACE|ROLLBACK|SAVEPOINT|SELECT|UPDATE|VACUUM|WITH)\b|\.[a-z]", re.I)

    def __init__(self):
        self.without_semicolon = 0
        # sqlite3's own dot commands, and an incomplete statement at the end of a file.
        self.left_out = 0

    def read(self, path):
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
            text = ""
            try:
                for line in lines:
                    if text and self._BEGINS.match(line) and _complete(text + ";"):
                        self.without_semicolon += 1
                        yield text + ";"
                        text = ""
                    if not text and (not line.strip() or line.startswith(("--", "."))):
                        self.left_out += line.startswith(".")
                        continue
                    text += line
                    if _complete(text):
                        yield text
                        text = ""
            except (EOFError, lzma.LZMAError) as error:
                raise WorkloadError(f"{path}: {error}") from error
        if text and _complete(text + ";"):
            self.without_semicolon += 1
            yield text + ";"
        elif text:
            self.left_out += 1


def _complete(text):
    """Whether SQLite parses this as complete statements (bodies of triggers have semicolons)."""
    try:
        from sqlite3 import complete_statement
    except ImportError as error:
        raise WorkloadError(f"this Python lacks its sqlite3 module: {error}") from error
    return complete_statement(text)


def _transactions(statements):
    """Group BEGIN … COMMIT; statements outside of transactions are alone."""
    unit = []
    for text in statements:
        word = text.split(None, 1)[0].rstrip(";").upper()
        if word == "BEGIN" and unit:
            yield unit
            unit = []
        unit.append(text)
        if unit[0].split(None, 1)[0].rstrip(";").upper() != "BEGIN" or word in ("COMMIT", "END", "ROLLBACK"):
            yield unit
            unit = []
    if unit:
        yield unit
