"""Hashes and seeds that are the same in every process, on every machine and in every Python version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def stable_seed(*parts: object) -> int:
    """A 64-bit seed made from names and numbers, e.g. ``stable_seed("copy", "train", 8)``."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def stable_generator(*parts: object) -> np.random.Generator:
    """A numpy generator of its own, seeded by :func:`stable_seed`; the global generators are never touched."""
    return np.random.default_rng(stable_seed(*parts))


def string_hashes(strings: Iterable[str], purpose: str) -> np.ndarray:
    """One uniform 64-bit number for each string, shape (n,), uint64; other purposes give unrelated numbers."""
    fresh = hashlib.blake2b(digest_size=8, person=purpose.encode()[:16])
    digests = []
    for string in strings:
        digest = fresh.copy()  # half the time of making a new one
        digest.update(string.encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8")


def row_hashes(matrix: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One 64-bit number for the first ``lengths[i]`` entries of each row i, whatever the matrix's width.

    Args:
        matrix: integers, shape (n, width).
        lengths: shape (n,).

    Returns:
        shape (n,), uint64.
    """
    hashes = _mixed(lengths.astype(np.uint64))
    for column in range(matrix.shape[1]):
        mixed = _mixed(hashes ^ matrix[:, column].astype(np.uint64))
        hashes = np.where(column < lengths, mixed, hashes)
    return hashes


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea & Flood 2014), elementwise."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
