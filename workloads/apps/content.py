"""Texts that people write, and pictures."""

import struct
import zlib

WORDS = (
    "the train leaves soon and we meet at station near old bridge bring your "
    "umbrella rain later dinner tonight maybe pasta or soup call me when home "
    "photo from garden looks great thanks happy birthday see you tomorrow ok "
    "where are tickets game starts seven good morning work late again sorry"
).split()


def sentence(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def png(width, height, rows, level=0):
    """An image of RGB pixels, each row of which begins with a zero; uncompressed at level 0."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, level)), (b"IEND", b""))
    )


def noise(rng, width, height, level=0):
    """An image of random pixels, which no level makes smaller."""
    return png(width, height, b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height)), level)
