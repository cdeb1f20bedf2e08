"""The rule of the verdict: when something is met, missed or undecided, and what would decide it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import exp

import pytest

from cli.results.decision import (
    CandidateVerdict,
    Cell,
    Requirement,
    Sample,
    Status,
    Unit,
    decide,
    find_narrowest,
)

P99 = Requirement(key="insert.p99", heading="inserts p99", unit=Unit.MS, bound=250)
RATE = Requirement(
    key="events_per_s", heading="load", unit=Unit.EVENTS_PER_S, bound=1600, at_least=True
)


def _samples(values: Sequence[float | None], row: Requirement = P99) -> list[Sample]:
    return [
        Sample(
            repetition=number,
            keeps=None if value is None else row.find_headroom(value) >= 1,
            value=value,
            why="it was away" if value is None else None,
        )
        for number, value in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("values", "status", "said"),
    [
        ([100, 110], Status.MET, None),
        ([10, 20], Status.MET, None),
        ([300, 320], Status.MISSED, None),
        ([100], Status.UNDECIDED, "one repetition"),
        ([900], Status.UNDECIDED, "one repetition"),
        ([], Status.UNDECIDED, "not measured yet"),
        ([100, 300], Status.UNDECIDED, "repetitions disagree: 1 of 2 keep it"),
        ([240, 249.9], Status.UNDECIDED, "too close to call: 2 repetitions differ by a factor of"),
        ([251, 270], Status.UNDECIDED, "too close to call: 2 repetitions differ by a factor of"),
        ([100, None, 100], Status.UNDECIDED, "1 gave no figure of 3 repetitions: it was away"),
        ([300, None, 320], Status.MISSED, None),
        ([None, None], Status.UNDECIDED, "it was away"),
        # With an interval as wide as this, two repetitions at 2.4 times headroom say nothing.
        ([50, 200], Status.UNDECIDED, "by a factor of 4: about repeats: 6 would decide"),
    ],
)
def test_a_repetition_is_a_sample(
    values: list[float | None], status: Status, said: str | None
) -> None:
    cell = decide(P99, _samples(values))
    assert cell.status is status
    assert (said or "") in (cell.reason or "")
    assert len(cell.samples) == len(values)


def test_what_would_decide_does_decide() -> None:
    """As many repetitions as are said to be enough are enough, if they vary alike."""
    few = decide(P99, _samples([50, 200]))
    assert few.reason is not None
    needed = int(few.reason.partition("repeats: ")[2].partition(" ")[0])
    assert needed > 2
    assert decide(P99, _samples(([50, 200] * needed)[: needed + needed % 2])).status is Status.MET


def test_figure_and_headroom() -> None:
    cell = decide(P99, _samples([100, 104]))
    assert cell.headroom == pytest.approx(2.45, abs=0.01)
    assert (cell.lowest, cell.highest, cell.shown) == (100, 104, "102 ms")
    low = decide(RATE, _samples([800, 820], RATE))
    assert low.status is Status.MISSED
    assert low.headroom == pytest.approx(0.506, abs=0.001)
    assert decide(RATE, _samples([4000, 4100], RATE)).status is Status.MET


def test_a_bound_doesnt_miss() -> None:
    """What the client could send at most is no capacity of the database."""
    cell = decide(RATE, _samples([800, 820], RATE), at_least=True)
    assert cell.status is Status.UNDECIDED
    assert "the client was the limit" in (cell.reason or "")
    assert cell.shown.startswith("at least ")


def test_what_must_never_happen_is_missed_at_once() -> None:
    lost = Sample(repetition=2, keeps=False, why="3 events are missing", final=True)
    cell = decide(P99, [*_samples([100]), lost, *_samples([100])])
    assert (cell.status, cell.reason) == (Status.MISSED, "3 events are missing")
    lost = lost.model_copy(update={"shown": "3 events lost"})
    told = decide(P99, [*_samples([100]), lost])
    assert (told.shown, told.value, told.highest) == ("3 events lost", None, None)
    unmeasured = Sample(repetition=1, keeps=True, value=10.0, final=True)
    assert decide(P99, [unmeasured]).status is Status.MET


@pytest.mark.parametrize("repeats", [2, 3, 6])
@pytest.mark.parametrize("spread", [0.05, 0.4])
def test_equals_at_the_limit_are_hardly_ever_told_apart(repeats: int, spread: float) -> None:
    """Two names of one thing that is exactly at the limit: one must not be met and the other missed, but in
    2 × 5 % × 5 % at most."""
    draw = random.Random(7)

    def measure() -> Status:
        values = [250 * exp(draw.gauss(0, spread)) for _ in range(repeats)]
        return decide(P99, _samples(values)).status

    pairs = [{measure(), measure()} for _ in range(1000)]
    assert sum(pair == {Status.MET, Status.MISSED} for pair in pairs) <= 10


def test_with_headroom_few_repetitions_decide() -> None:
    draw = random.Random(7)
    statuses = [
        decide(P99, _samples([100 * exp(draw.gauss(0, 0.1)) for _ in range(3)])).status
        for _ in range(200)
    ]
    assert statuses.count(Status.MET) > 190


def _cell(key: str, status: Status, headroom: float | None) -> Cell:
    return Cell(requirement=key, status=status, headroom=headroom, shown="-")


def test_the_narrowest_is_named() -> None:
    met, near = _cell("a", Status.MET, 3.0), _cell("b", Status.MET, 1.2)
    lost, unknown = _cell("c", Status.MISSED, None), _cell("d", Status.UNDECIDED, None)
    assert find_narrowest([met, near, unknown]) == "b"
    assert find_narrowest([met, near, lost]) == "c"
    assert find_narrowest([unknown]) is None


def test_a_candidate_is_as_good_as_its_worst() -> None:
    def judge(*statuses: Status) -> Status:
        cells = [_cell(str(number), status, None) for number, status in enumerate(statuses)]
        return CandidateVerdict(candidate="x", cells=cells).status

    assert judge(Status.MET, Status.MET) is Status.MET
    assert judge(Status.MET, Status.UNDECIDED) is Status.UNDECIDED
    assert judge(Status.MISSED, Status.UNDECIDED) is Status.MISSED


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        (Unit.EVENTS_PER_S, 1600.0, "1,600 events/s"),
        (Unit.MS, 1234.0, "1,234 ms"),
        (Unit.S, 12.5, "12.5 s"),
        (Unit.SHARE, 0.001, "0.1%"),
        (Unit.BYTES, 1.83e12, "1.83 TB"),
        (Unit.MONEY, 812.0, "812"),
        (Unit.MONEY, 12.5, "12.50"),
    ],
)
def test_figures_are_shown_with_their_unit(unit: Unit, value: float, shown: str) -> None:
    assert unit.show(value) == shown
