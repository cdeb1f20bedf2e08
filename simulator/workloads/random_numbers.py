"""Random numbers of each event, without those of the events before it."""

from __future__ import annotations

from functools import lru_cache
from threading import get_ident

import numpy as np
from numpy.typing import NDArray


def random_words(seed: int, worker: int, first: int, count: int, words: int) -> NDArray[np.uint64]:
    """`words` random 64-bit numbers for each event of [first, first + count): shape (count, words).

    Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) is a
    function of key and counter, so any event's numbers are computed without those before it. Its
    raw output is covered by numpy's stream compatibility promise.
    """
    skipped_blocks, skipped_words = divmod(first * words, 4)
    raw = _stream(seed, worker, get_ident()).words(skipped_blocks, skipped_words + count * words)
    return raw[skipped_words:].reshape(count, words)


class _Stream:
    """A generator that is moved to the place from which numbers are wanted.

    Making a new one takes as long as generating a thousand events, since numpy asks the system for a
    seed even if it's given a key.
    """

    def __init__(self, seed: int, worker: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, worker], dtype=np.uint64))
        self._block = 0

    def words(self, block: int, count: int) -> NDArray[np.uint64]:
        """`count` numbers, beginning with those of a block of four."""
        self._generator.advance(block - self._block)
        found: NDArray[np.uint64] = self._generator.random_raw(count)
        self._block = block + -(-count // 4)
        return found


@lru_cache(maxsize=16)
def _stream(seed: int, worker: int, _thread: int) -> _Stream:
    return _Stream(seed, worker)
