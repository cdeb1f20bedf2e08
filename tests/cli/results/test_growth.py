"""What each step adds on disk."""

from __future__ import annotations

from cli.results.growth import measure_growth
from cli.show.database import tabulate_storage
from simulator.contract import InsertRun, Storage


def run(fill_level: int, size: int | None, events: int | None) -> InsertRun:
    return InsertRun(
        workers=1, run=1, fill_level=fill_level, valid=True, invalid_reasons=[],
        storage=Storage(total_bytes=size, events=events),
    )  # fmt: skip


def test_a_step_adds_what_its_events_take() -> None:
    runs = [run(0, 5000, 100), run(100, 7000, 200), run(200, 6900, 300)]
    assert measure_growth(runs) == [None, 20.0, -1.0]
    table = tabulate_storage(runs)
    place = table.headers.index("Step's B/event")
    assert [row[place] for row in table.rows] == ["-", "20.0", "-1.0"]


def test_runs_that_begin_anew_have_no_growth() -> None:
    runs = [run(0, 5000, 100), run(0, 5000, 100), run(100, None, 200), run(200, 9000, 300)]
    runs += [run(300, 9000, None), run(0, 1, 1)]
    runs[-1].storage = None
    assert measure_growth(runs) == [None] * 6
    assert "Step's B/event" not in tabulate_storage(runs).headers
