"""How a verdict shows on how much it was measured, and what follows for all."""

from __future__ import annotations

import pytest

from cli.results.decision import (
    CandidateVerdict,
    Cell,
    Interval,
    Requirement,
    Scale,
    Status,
    Unit,
    VerdictMatrix,
)
from cli.show.requirements import describe_candidate, make_matrix, show_cell

ROW = Requirement(key="insert.p99", heading="inserts p99", unit=Unit.MS, bound=250)


def _cell(mean: float, to: int = 300, status: Status = Status.MET) -> Cell:
    """A figure of 100 ms on a tenth of 300 events, and what is predicted for so many."""
    exponent = Interval(mean=0.1, low=0.1, high=0.1)
    grown = Interval(mean=mean, low=mean, high=mean)
    scale = Scale(
        events=30,
        kept=300,
        in_memory=True,
        exponent=exponent,
        extrapolated=grown,
        extrapolated_to=to,
    )
    return Cell(
        requirement=ROW.key, status=status, value=100.0, headroom=2.2, shown="100 ms", scale=scale
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (_cell(180), "met: 100 ms → 180 ms (2.2×) at 10%"),
        # Better figures are not what follows.
        (_cell(60), "met: 100 ms (2.2×) at 10%"),
        # Nothing follows for more than may be extrapolated to, but what is too much already.
        (_cell(180, to=200, status=Status.UNDECIDED), "undecided: 100 ms (2.2×) at 10%"),
        (_cell(400, to=200, status=Status.MISSED), "missed: 100 ms → 400 ms (2.2×) at 10%"),
        (_cell(180).model_copy(update={"scale": None}), "met: 100 ms (2.2×)"),
    ],
)
def test_a_cell_is_a_few_words(cell: Cell, shown: str) -> None:
    assert show_cell(ROW, cell) == shown


def test_flat_is_said_where_the_interval_says_so() -> None:
    flat = _cell(101)
    assert flat.scale is not None
    nearly = flat.scale.model_copy(update={"exponent": Interval(mean=0.0, low=-0.02, high=0.02)})
    assert (
        show_cell(ROW, flat.model_copy(update={"scale": nearly}))
        == "met: 100 ms, flat (2.2×) at 10%"
    )
    widely = flat.scale.model_copy(update={"exponent": Interval(mean=0.0, low=-0.2, high=0.2)})
    assert "flat" not in show_cell(ROW, flat.model_copy(update={"scale": widely}))


def test_a_candidate_has_one_line_and_each_cell_of_a_page_its_part() -> None:
    candidate = CandidateVerdict(candidate="one", cells=[_cell(180)], narrowest=ROW.key)
    verdict = VerdictMatrix(title="T", requirements=[ROW], candidates=[candidate], repeats=2)
    text = describe_candidate(verdict, candidate)
    assert text.endswith("measured on 30 of 300 events (10%), in memory.")
    [[(_, _, figure, headroom, scale)]] = [row["cells"] for row in make_matrix(verdict)["rows"]]
    assert (figure, headroom, scale) == ("100 ms → 180 ms", "2.2×", "at 10%, in memory")
