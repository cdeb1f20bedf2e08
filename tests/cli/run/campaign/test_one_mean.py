"""A figure over repetitions is the same number, with the same range, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.results.answers import Capacity
from cli.results.judging import judge
from cli.results.loads import Measured, Question, Repetition
from cli.results.model import Result
from cli.results.published import find_candidates, make_fields
from cli.results.requirements import RATE, Requirements
from cli.results.sources import find_sources
from cli.run.campaign.reporting import tabulate_step
from cli.show.ranking import rank_candidates
from cli.show.requirements import describe_headroom, show_cell, show_figure
from comparison.table import show_cell as show_in_readme

from ...made import capacity, inserts, stored
from ...publishing.published import keep_campaign
from .test_campaign_charts import draw, rows

FOUND = (2170.0, 19_500.0, 83_600.0)
"""What three repetitions held, as far apart as they once were: their arithmetic mean is 35,090."""
MEAN, LOWEST, HIGHEST = "15,237", "2,170", "83,600"


def _search(rate: float) -> Result:
    answer = Capacity(precision=0.05, events_per_s=rate, above_per_s=1.05 * rate, sure=True)
    return capacity().model_copy(update={"capacity": answer})


def test_a_capacity_is_one_number(tmp_path: Path) -> None:
    measured = {"alpha": list(map(_search, FOUND)), "beta": [_search(500.0)] * 3}

    repetitions = [
        Repetition(number, [stored(result)]) for number, result in enumerate(measured["alpha"], 1)
    ]
    question = Question(Requirements.model_validate({"events_per_s": 100}), 100.0)
    verdict = judge(question, "T", [Measured("alpha", repetitions)], 3, 0)
    (row,), cell = verdict.requirements, verdict.candidates[0].find(RATE)
    assert show_figure(row, cell) == f"holds {MEAN} events/s ({LOWEST} to {HIGHEST})"
    assert show_cell(row, cell) == f"met: holds {MEAN} events/s (152×)"
    # The factor has a range, too.
    assert describe_headroom(cell) == "152×, 22× to 836×"

    lines = rank_candidates("capacity", measured, 3).lines
    ranked = f"alpha (undecided): holds {MEAN} ({LOWEST} to {HIGHEST}) events/s"
    assert next(line.partition(";")[0].rstrip(".") for line in lines if "alpha" in line) == ranked

    bars = {row["name"]: row["value"] for row in rows(draw("capacity", measured))}
    assert f"{bars['alpha']:,.0f}" == MEAN

    table = tabulate_step(measured)
    assert table.rows[0][2:5] == [MEAN, LOWEST, HIGHEST]

    results = {
        f"{name} capacity {number}": result
        for name, own in measured.items()
        for number, result in enumerate(own, 1)
    }
    folder = keep_campaign(tmp_path / "night", results, steps=["capacity"])
    (field,) = make_fields(find_candidates(find_sources([folder])))
    (place,) = [n for n, column in enumerate(field.columns) if column.aspect.key == "capacity"]
    on_site = next(row for row in field.rows if row.candidate.name == "alpha").cells[place]
    assert on_site is not None
    assert (on_site.text, on_site.rank) == (MEAN, "undecided")
    assert show_in_readme(on_site, False) == f"{MEAN} ({LOWEST} to {HIGHEST})"


@pytest.mark.parametrize("rates", [(100.0,), (100.0, 400.0)])
def test_of_one_repetition_it_is_its_results_own(rates: tuple[float, ...]) -> None:
    result = inserts({1: list(rates)})
    (line, *_) = rank_candidates("insert", {"alpha": [result]}, 1).lines
    assert line.startswith(f"alpha: {result.insert_summary[0].avg:,.0f}")
