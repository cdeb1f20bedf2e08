"""Candidates beside each other: rows, pairs, ranks."""

from __future__ import annotations

from math import inf

import pytest

from cli.results.caveats import Place
from cli.results.matrix import CandidateFigures, Matrix, tabulate
from cli.results.observations import CAPACITY, observe

from ..made import capacity, inserts, open_loop

AT_ONE = Place(workers=1)


def test_observations_become_a_row_for_each_candidate() -> None:
    """One sample for each repetition, and what gave none is counted."""
    observations = [
        seen
        for name, rates in (("a", (100.0, 110.0)), ("b", (50.0,)))
        for number, rate in enumerate(rates, 1)
        for seen in observe(inserts({1: [rate, rate]}), name, number)
    ]
    rows = tabulate(observations, {"a": 2, "b": 3}).rows
    assert rows["a"].pool() == {AT_ONE: pytest.approx([100.0, 110.0])}
    assert (rows["b"].repetitions, rows["b"].failed, rows["b"].complete) == (3, 2, False)


def test_only_the_figures_that_count_are_samples() -> None:
    observations = list(observe(open_loop({1: [900.0, 901.0]}), "a"))
    (samples,) = tabulate(observations, {"a": 1}, {"latency_p99_ms"}).rows["a"].samples
    assert list(samples) == [Place(workers=1, figure="latency_p99_ms")]


def test_a_search_is_known_by_its_ends() -> None:
    bound = tabulate(observe(capacity(at=50_000, client_bound=True), "a"), {"a": 1}).rows["a"]
    assert (list(bound.samples[0]), bound.bounds) == ([CAPACITY], [inf])
    assert bound.precision > 0


def test_each_pair_has_its_share_of_the_error() -> None:
    rates = {"slow": (100.0, 101.0), "fast": (200.0, 202.0), "gone": ()}
    rows = {
        name: CandidateFigures([{AT_ONE: [rate]} for rate in own], failed=2 - len(own))
        for name, own in rates.items()
        if own
    }
    matrix = Matrix(rows)
    ratio = matrix.pairs["fast", "slow"]
    assert ratio is not None and ratio.value == pytest.approx(2.0)
    assert {name: str(rank) for name, rank in matrix.rank().items()} == {"fast": "1", "slow": "2"}
    assert Matrix(rows | {"third": rows["slow"]}).error == pytest.approx(matrix.error / 3)
