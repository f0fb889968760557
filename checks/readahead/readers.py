"""The readers: what each does with its file.

A reader is a list of operations on a file of its own, which nothing has read since it was mounted.
Operations are dictionaries in the form of the recording (README.md).
"""

import random
from dataclasses import dataclass, field

PAGE = 4096
KIB, MIB = 1 << 10, 1 << 20
# Maximum sizes of read-ahead, in KiB, for sequential readers and for the others.
MANY = (16, 32, 64, 128, 256, 512, 1024, 2560)
FEW = (16, 128, 512)
ONE = (128,)
SEED = 20


@dataclass(frozen=True)
class Reader:
    name: str
    steps: list
    file_bytes: int = 4 * MIB
    read_ahead_kb: tuple = ONE
    # Runs [first page, count] with data; None: the whole file.
    data: list | None = field(default=None)


def opened(fd=0):
    return {"op": "open", "fd": fd}


def closed(fd=0):
    return {"op": "close", "fd": fd}


def read(at, length, fd=0):
    return {"op": "read", "fd": fd, "at": at, "bytes": length}


def advise(advice, at=0, length=0, fd=0):
    """Give advice on `length` bytes, or on the whole file."""
    part = {"at": at, "bytes": length} if length else {}
    return {"op": "advise", "fd": fd, "advice": advice, **part}


def mapped(number=0, fd=0, **about):
    """Map the file, or `pages` from `page`. `kind` is shared, private (writable) or executable."""
    return {"op": "map", "map": number, "fd": fd, **about}


def advise_map(advice, number=0):
    return {"op": "advise", "map": number, "advice": advice}


def fault(page, number=0):
    return {"op": "fault", "map": number, "page": page}


def stored(page, number=0):
    """A store into a private map, which does not reach the file."""
    return {"op": "fault", "map": number, "page": page, "write": True}


def seq(length, count, start=0, fd=0):
    """Reads of `length` bytes, one after another."""
    return [read(start + i * length, length, fd) for i in range(count)]


def one(*steps):
    """The steps with one descriptor around them."""
    return [opened(), *flat(steps), closed()]


def with_map(*steps):
    return [opened(), mapped(), *flat(steps), closed()]


def flat(steps):
    for step in steps:
        if isinstance(step, dict):
            yield step
        else:
            yield from flat(step)


def random_pages(count, pages, aligned=1):
    """Seeded page numbers, all different, which the reader of any kernel takes."""
    return [page * aligned for page in random.Random(SEED).sample(range(pages // aligned), count)]


def interleaved(*streams):
    return [step for steps in zip(*streams, strict=True) for step in steps]


MIDDLE = 1000 * PAGE
# The pages of a file with holes: short and long runs of data.
HOLES = [[0, 3], [5, 1], [8, 40], [100, 7], [128, 128], [600, 200]]
# The pages of the first window are all data, so one request brings them: pages of which a hole
# separates the requests would become up to date in any order.
MAPPED_HOLES = [[0, 32], [40, 8], [64, 60]]
END_PAGES = 37


def readers():
    return [
        *_sequential(), *_several_streams(), *_not_sequential(), *_mapped(), *_ends(), *_advised(), *_cached(),
        *_off(),
    ]


def _sequential():
    big = 16 * MIB
    return [
        Reader("seq4k", one(seq(4 * KIB, 200))),
        Reader("seq4k-short", one(seq(4 * KIB, 50)), read_ahead_kb=(16, 32, 64, 256, 512, 1024, 2560)),
        Reader("seq16k", one(seq(16 * KIB, 30)), read_ahead_kb=MANY),
        Reader("seq128k", one(seq(128 * KIB, 18)), big, read_ahead_kb=MANY),
        Reader("seq1m", one(seq(MIB, 8)), big, read_ahead_kb=MANY),
        Reader("mid4k", one(seq(4 * KIB, 40, MIDDLE)), 8 * MIB, read_ahead_kb=FEW),
        Reader("mid16k", one(seq(16 * KIB, 20, MIDDLE)), 8 * MIB, read_ahead_kb=FEW),
        Reader("mid128k", one(seq(128 * KIB, 12, MIDDLE)), 8 * MIB),
        Reader("mid1m", one(seq(MIB, 6, MIDDLE)), big),
        Reader("seq512", one(seq(512, 48))),
        Reader("seq5000", one(seq(5000, 60))),
        Reader("mid5000", one(seq(5000, 40, MIDDLE + 1234)), 8 * MIB),
        # Longer reads after short ones, and shorter ones after long ones.
        Reader("growing", one(seq(4 * KIB, 8), seq(16 * KIB, 8, 32 * KIB), seq(128 * KIB, 8, 160 * KIB),
                              seq(4 * KIB, 40, 1184 * KIB))),
    ]


def _several_streams():
    length, count = 4 * KIB, 24
    return [
        Reader("two-descriptors-apart", [opened(0), opened(1), *interleaved(
            seq(length, count, 0, 0), seq(length, count, MIDDLE, 1)), closed(0), closed(1)], 8 * MIB),
        # The second reads what the first has just read.
        Reader("two-descriptors-behind", [opened(0), opened(1), *interleaved(
            seq(length, count, 0, 0), seq(length, count, 0, 1)), closed(0), closed(1)]),
        # One stream, of which each descriptor reads every other page.
        Reader("two-descriptors-alternating", [opened(0), opened(1), *(
            read(i * length, length, i % 2) for i in range(2 * count)), closed(0), closed(1)]),
        Reader("one-descriptor-two-streams", one(interleaved(
            seq(length, count), seq(length, count, MIDDLE))), 8 * MIB),
        Reader("one-descriptor-two-streams-64k", one(interleaved(
            seq(64 * KIB, 8), seq(64 * KIB, 8, MIDDLE))), 8 * MIB),
    ]


def _not_sequential():
    large = 16 * MIB
    pages = large // PAGE
    return [
        *(Reader(f"stride{n}", one(read(i * n * PAGE, PAGE) for i in range(count)), 12 * MIB)
          for n, count in ((2, 24), (4, 24), (16, 10), (64, 10))),
        Reader("stride8-16k", one(read(i * 8 * PAGE, 4 * PAGE) for i in range(16))),
        Reader("backwards4k", one(read(i * PAGE, PAGE) for i in range(160, 146, -1)), read_ahead_kb=FEW),
        Reader("backwards16k", one(read(i * PAGE, 4 * PAGE) for i in range(160, 80, -4))),
        Reader("random4k", one(read(p * PAGE, PAGE) for p in random_pages(24, pages)), large),
        Reader("random4k-short", one(read(p * PAGE, PAGE) for p in random_pages(12, pages)), large,
               read_ahead_kb=(16, 512)),
        Reader("random16k", one(read(p * PAGE, 4 * PAGE) for p in random_pages(24, pages, 4)), large),
        Reader("random16k-short", one(read(p * PAGE, 4 * PAGE) for p in random_pages(12, pages, 4)), large,
               read_ahead_kb=(16, 512)),
        Reader("random1m", one(read(p * PAGE, MIB) for p in random_pages(8, pages, 256)), large),
        # A stream that skips a few pages, and one that goes back.
        Reader("skip", one(seq(PAGE, 20), seq(PAGE, 30, 25 * PAGE))),
        Reader("back", one(seq(PAGE, 20), seq(PAGE, 40, 10 * PAGE))),
        Reader("again", one(seq(PAGE, 20), seq(PAGE, 30))),
    ]


def _mapped():
    large = 16 * MIB
    pages = large // PAGE
    scattered = [fault(page) for page in random_pages(16, pages)]
    return [
        Reader("mmap-seq", with_map(fault(i) for i in range(130))),
        Reader("mmap-seq-short", with_map(fault(i) for i in range(60)), read_ahead_kb=(16, 512, 2560)),
        Reader("mmap-mid", with_map(fault(1000 + i) for i in range(40)), 8 * MIB),
        Reader("mmap-random", with_map(scattered[:16]), large),
        Reader("mmap-random-short", with_map(scattered[:12]), large, read_ahead_kb=(16, 512)),
        Reader("mmap-backwards", with_map(fault(i) for i in range(200, 164, -1))),
        Reader("mmap-stride16", with_map(fault(16 * i) for i in range(16))),
        Reader("mmap-madv-random", with_map(advise_map("random"), (fault(i) for i in range(60)))),
        Reader("mmap-madv-sequential", with_map(advise_map("sequential"), (fault(i) for i in range(90)))),
        Reader("mmap-madv-sequential-random", with_map(advise_map("sequential"), scattered[:12]), large),
        Reader("mmap-madv-willneed", with_map(advise_map("willneed"), (fault(i) for i in range(40)))),
        # Pages that a page fault maps around its own count as hits, so misses do not add up.
        Reader("mmap-misses", with_map((fault(page) for page in random_pages(104, 64 * MIB // PAGE, 128)), (
            fault(5001 + i) for i in range(24))), 64 * MIB),
        # A store into a private map maps no pages around. A hundred misses turn read-around off.
        Reader("mmap-private-stores", [
            opened(), mapped(kind="private"), *(stored(page) for page in random_pages(
                104, 64 * MIB // PAGE, 128)),
            *(stored(5000 + i) for i in range(6)), advise("willneed", 6000 * PAGE, 32 * PAGE),
            *(stored(6000 + i) for i in range(0, 32, 2)), *(stored(7000 + i) for i in range(20)), closed()], 64 * MIB),
        # Code, as a program's loader maps it.
        Reader("mmap-executable", [opened(), mapped(kind="executable"), *(fault(i) for i in range(60)), closed()]),
        Reader("mmap-executable-random", [opened(), mapped(kind="executable"), *scattered[:12], closed()], large),
        # A map of pages 100 to 299.
        Reader("mmap-part", [opened(), mapped(page=100, pages=200), *(
            fault(i) for i in [110, *range(280, 300), *range(100, 104)]), closed()]),
        Reader("mmap-part-executable", [opened(), mapped(kind="executable", page=100, pages=200), *(
            fault(i) for i in [110, *range(280, 300), *range(100, 104)]), closed()]),
        Reader("mmap-after-read", [opened(), *seq(4 * KIB, 10), mapped(), *(fault(i) for i in range(60)), closed()]),
        Reader("mmap-and-read", [opened(), mapped(), *interleaved(
            [fault(i) for i in range(30)], seq(4 * KIB, 30, MIDDLE)), closed()], 8 * MIB),
        Reader("mmap-holes", with_map(fault(i) for i in range(120)), data=MAPPED_HOLES),
    ]


def _ends():
    end = END_PAGES * PAGE
    return [
        Reader("holes4k", one(seq(PAGE, 110)), data=HOLES),
        Reader("holes128k", one(seq(128 * KIB, 16)), data=HOLES),
        Reader("end4k", one(seq(PAGE, END_PAGES + 3)), end),
        Reader("end16k", one(seq(16 * KIB, 11)), end, read_ahead_kb=FEW),
        Reader("end128k", one(seq(128 * KIB, 3)), end, read_ahead_kb=FEW),
        Reader("end1m", one(seq(MIB, 2)), end),
        # Only part of the last page is the file's.
        Reader("end-within-page", one(seq(16 * KIB, 11)), end - 1000),
        Reader("end-first", one(read(36 * PAGE, PAGE), seq(PAGE, 37)), end),
        Reader("end-mmap", with_map(fault(i) for i in range(END_PAGES)), end),
        Reader("one-page", one(seq(PAGE, 2)), PAGE, read_ahead_kb=FEW),
        Reader("three-pages", one(seq(PAGE, 4)), 3 * PAGE),
        Reader("three-pages-at-once", one(seq(16 * KIB, 2)), 3 * PAGE, read_ahead_kb=FEW),
    ]


def _advised():
    return [
        Reader("advise-random", one(advise("random"), seq(PAGE, 25))),
        Reader("advise-random-128k", one(advise("random"), seq(128 * KIB, 8))),
        Reader("advise-sequential", one(advise("sequential"), seq(PAGE, 50))),
        Reader("advise-sequential-128k", one(advise("sequential"), seq(128 * KIB, 16)), 8 * MIB),
        Reader("advise-sequential-1m", one(advise("sequential"), seq(MIB, 6)), 16 * MIB, read_ahead_kb=FEW),
        Reader("advise-random-normal", one(advise("random"), seq(PAGE, 10), advise("normal"), seq(
            PAGE, 40, 10 * PAGE))),
        Reader("advise-sequential-normal", one(advise("sequential"), seq(PAGE, 40), advise("normal"), seq(
            PAGE, 60, 40 * PAGE))),
        # Advice in the middle of a stream.
        Reader("advise-random-late", one(seq(PAGE, 20), advise("random"), seq(PAGE, 40, 20 * PAGE))),
        Reader("advise-willneed", one(advise("willneed", 0, 256 * KIB), seq(PAGE, 80))),
        Reader("advise-willneed-range", one(advise("willneed", 100 * PAGE, MIB), seq(16 * KIB, 20, 80 * PAGE), seq(
            PAGE, 40, 340 * PAGE))),
        Reader("advise-willneed-all", one(advise("willneed"), seq(16 * KIB, 10))),
        # The pages leave, and their marks with them.
        Reader("advise-dontneed", one(seq(PAGE, 32), advise("dontneed", 0, 16 * PAGE), seq(PAGE, 40))),
    ]


def _cached():
    def kept(at, length):
        """Exactly these pages come into the cache, by a descriptor that is closed again."""
        return [opened(1), advise("random", fd=1), read(at, length, fd=1), closed(1)]

    return [
        Reader("cached64", [*kept(0, 64 * PAGE), *one(seq(PAGE, 110))]),
        Reader("cached64-16k", [*kept(0, 64 * PAGE), *one(seq(16 * KIB, 32))]),
        Reader("cached-within", [*kept(16 * PAGE, 8 * PAGE), *one(seq(PAGE, 50))]),
        Reader("cached-every-4th", [opened(1), advise("random", fd=1), *(
            read(i * 4 * PAGE, PAGE, 1) for i in range(16)), closed(1), *one(seq(PAGE, 30))]),
        # The mark of another descriptor's window, and cached pages behind it: more than a window.
        Reader("marked-before-cached", [opened(1), read(0, PAGE, 1), advise("willneed", 0, 40 * PAGE, 1), *one(
            seq(PAGE, 44, PAGE)), closed(1)]),
        # A stream that goes on where another descriptor ended.
        Reader("continued", [opened(1), *seq(16 * KIB, 16, 0, 1), closed(1), *one(seq(PAGE, 60, 256 * KIB))]),
        # A miss behind cached pages: these count as its history.
        *(Reader(f"history{n}", [*kept((300 - n) * PAGE, n * PAGE), *one(seq(PAGE, 40, 300 * PAGE))])
          for n in (1, 4, 20)),
        Reader("history-all", [*kept(0, 12 * PAGE), *one(seq(PAGE, 30, 12 * PAGE))]),
        Reader("history20-16k", [*kept(280 * PAGE, 20 * PAGE), *one(seq(16 * KIB, 16, 300 * PAGE))]),
        Reader("cached64-mmap", [*kept(0, 64 * PAGE), *with_map(fault(i) for i in range(110))]),
    ]


def _off():
    return [
        Reader("off4k", one(seq(PAGE, 6)), read_ahead_kb=(0,)),
        Reader("off16k", one(seq(16 * KIB, 4)), read_ahead_kb=(0,)),
        Reader("off-mmap", with_map(fault(i) for i in range(6)), read_ahead_kb=(0,)),
        Reader("off-advise", one(advise("willneed", 0, 8 * PAGE), advise("sequential"), seq(PAGE, 12)),
               read_ahead_kb=(0,)),
    ]
