"""Many streams of random numbers at once: each as numpy makes it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.workloads.noise import random_word, random_words
from simulator.workloads.random_streams import (
    FEWEST_ROWS,
    MOST_CHOSEN,
    BlockStreams,
    NumpyStreams,
    Streams,
    multiply_high,
    open_streams,
)

SEEDS = (0, 1, 2**32 - 1, 2**32, 2**64 - 1)


def open_both(
    before: Sequence[int], first: int, after: int, count: int = 40
) -> tuple[Streams, list[np.random.Generator]]:
    """The streams, and numpy's own generators."""
    streams = open_streams(before, range(first, first + count), after)
    seeds = [[*before, number, after] for number in range(first, first + count)]
    return streams, [np.random.default_rng(seed) for seed in seeds]


def below(generators: Sequence[np.random.Generator], count: int) -> list[int]:
    return [int(generator.integers(count, dtype=np.uint64)) for generator in generators]


@pytest.mark.parametrize("seed", SEEDS)
def test_streams_are_seeded_as_numpy_seeds_them(seed: int) -> None:
    draw = random.Random(seed)
    for reader in (0, 1, 2**32 - 1, 2**32, draw.getrandbits(16)):
        first, after = draw.choice([0, 77, 2**32 - 40]), draw.choice([0, draw.getrandbits(32)])
        streams, generators = open_both((seed, reader), first, after)
        assert isinstance(streams, BlockStreams)
        for count in (2**63 - 1, 2**32, 5):
            assert streams.integers(0, count - 1).tolist() == below(generators, count)


def test_thousands_of_draws_of_any_size_are_those_of_numpy() -> None:
    """Ranges just above half of what a word holds are drawn twice about every other time; halves of words are
    left over for some rows then and for others not."""
    draw = random.Random(1)
    ranges = [1, 2, 3, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**62 + 1, 2**63 - 1]
    for _ in range(40):
        streams, generators = open_both((draw.getrandbits(64), draw.getrandbits(8)), 9, 4711)
        for _ in range(12):
            count = draw.choice([*ranges, draw.randrange(1, 10**6), draw.randrange(1, 10**12)])
            low = draw.choice([0, 1_704_067_200_000])
            high = min(low + count - 1, 2**63 - 1)
            rows = None if draw.random() < 0.5 else np.array(draw.sample(range(40), 11))
            chosen = generators if rows is None else [generators[row] for row in rows.tolist()]
            expected = [int(generator.integers(low, high, endpoint=True)) for generator in chosen]
            assert streams.integers(low, high, rows).tolist() == expected


def test_samples_are_those_of_numpy_and_so_is_what_is_drawn_behind_them() -> None:
    draw = random.Random(2)
    for _ in range(60):
        streams, generators = open_both((draw.getrandbits(40), 3), draw.randrange(10**6), 1)
        size = draw.choice([1, 2, 3, 10, MOST_CHOSEN])
        count = draw.choice([size, size + 1, size * 3, 9_999, 10_001, 10**6, 2**33])
        expected = [
            generator.choice(count, size, replace=False).tolist() for generator in generators
        ]
        assert streams.choose(count, size).tolist() == expected
        assert streams.integers(0, 6).tolist() == below(generators, 7)


@pytest.mark.parametrize(
    ("before", "numbers", "after", "size"),
    [
        ((1, 2), range(4, 4 + FEWEST_ROWS - 1), 3, 2),
        ((1, 2), range(4, 60), 3, MOST_CHOSEN + 1),
        ((1, 2), range(2**32 - 30, 2**32 + 30), 3, 2),
        ((1, 2), range(4, 60), 2**32, 2),
        ((2**200, 2), range(4, 60), 3, 2),
        ((1,), range(4, 60), 3, 2),
    ],
)
def test_what_is_not_worked_out_here_numpy_draws(
    before: tuple[int, ...], numbers: range, after: int, size: int
) -> None:
    streams = open_streams(before, numbers, after, size)
    assert isinstance(streams, NumpyStreams)
    generators = [np.random.default_rng([*before, number, after]) for number in numbers]
    # More than 10,000, of which numpy shuffles all if the sample is large.
    expected = [generator.choice(10_001, size, replace=False).tolist() for generator in generators]
    assert streams.choose(10_001, size).tolist() == expected
    rows: NDArray[np.intp] = np.array([0, 3])
    assert streams.integers(5, 90, rows).tolist() == [
        generators[row].integers(5, 91) for row in (0, 3)
    ]


def test_seeds_are_not_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        open_streams((-1, 0), range(9), 0)


def test_products_have_128_bits() -> None:
    draw = random.Random(3)
    words = [0, 1, 2**32 - 1, 2**32, 2**64 - 1, *(draw.getrandbits(64) for _ in range(200))]
    for factor in (0, 2**64 - 1, 2**32, draw.getrandbits(64)):
        products = multiply_high(np.array(words, dtype=np.uint64), np.uint64(factor))
        assert products.tolist() == [word * factor >> 64 for word in words]


def test_the_random_word_of_single_events_is_that_of_all() -> None:
    draw = random.Random(4)
    for seed in SEEDS:
        workers = [draw.choice([0, 3, 99_999]) for _ in range(30)]
        numbers = [draw.choice([draw.randrange(9), draw.randrange(10**12)]) for _ in range(30)]
        expected = [
            random_words(seed, worker, number, 1, 1)[0, 0]
            for worker, number in zip(workers, numbers, strict=True)
        ]
        assert random_word(seed, np.array(workers), np.array(numbers)).tolist() == expected
