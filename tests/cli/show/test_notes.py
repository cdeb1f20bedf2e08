"""The caveats of a result, as lines."""

from __future__ import annotations

from cli.results.store import read_result
from cli.show.notes import MOST_NOTES, list_notes, summarize_notes

from ..made import STORED, disturbed, inserts, open_loop, queries


def test_a_line_names_kind_place_and_figure() -> None:
    result = read_result(STORED / "steps.json")
    late = "worker 1 started up to 0.70 s late"
    assert list_notes(result, terminal=False)[0] == f"invalid: level 2,000: ~~181,915~~ {late}"
    assert list_notes(result, terminal=True)[0] == (
        f"invalid: level 2,000: \x1b[9m181,915\x1b[29m {late}"
    )


def test_a_run_without_a_figure_has_none_struck_through() -> None:
    lines = list_notes(read_result(STORED / "insert.json"), terminal=False)
    assert "invalid: 12 workers, run 1: no word from worker 0 for 60 s" in lines


def test_what_concerns_all_has_no_place() -> None:
    (line,) = list_notes(inserts({1: [100.0 + n for n in range(6)]}, complete=False), False)
    assert line == "incomplete: not all runs were made: the command was ended, or is still running"


def test_a_command_that_knows_its_end_names_it() -> None:
    runs = {1: [100.0 + n for n in range(6)]}
    (line,) = list_notes(inserts(runs, complete=False, ended_by="SIGINT"), False)
    assert line == "incomplete: not all runs were made: the command was ended by SIGINT"


def test_what_was_done_is_told_first_and_of_several_runs_with_the_run() -> None:
    result = disturbed((10.0, 5.0))
    first = list_notes(result, terminal=False)[0]
    assert first == (
        "After run number-1 at 10.0 s nothing was acknowledged for 4.9 s; the rate recovered after 5.0 s;"
        " nothing was lost or stored twice."
    )
    again = disturbed((10.0, 0)).runs[0]
    again.run = 2
    notes = list_notes(result.model_copy(update={"runs": [*result.runs, again]}), False)[:2]
    assert notes[0] == f"1 worker, run 1: {first}"
    assert notes[1].startswith(
        "1 worker, run 2: After run number-1 at 10.0 s events were acknowledged"
    )


def test_what_is_said_of_several_runs_is_said_once_for_each_number_of_workers() -> None:
    result = open_loop({1: [900.0, 901.0, 902.0], 4: [950.0]}, saturated=True)
    lines = [line for line in list_notes(result, False) if line.startswith("saturated")]
    assert [line.partition(" 1,000 events/s")[0] for line in lines] == [
        "saturated: 1 worker, 3 runs, as in run 1: did not keep up with",
        "saturated: 4 workers, run 1: did not keep up with",
    ]


def test_runs_that_hardly_vary_show_no_difference_of_nothing() -> None:
    lines = list_notes(open_loop({1: [1000.0, 1000.1, 999.9]}), False)
    assert any("only differences of 1% or more are detectable" in line for line in lines), lines


def test_below_a_table_each_kind_has_one_line() -> None:
    steady, varying = [1.0 + n / 1000 for n in range(6)], [1.0, 1.0, 1.0, 1.0, 1.0, 3.0]
    result = queries({f"q{n}": varying if n < 10 else steady for n in range(13)})
    assert sum(line.startswith("unstable: ") for line in list_notes(result, False)) == 10
    lines = summarize_notes(result, False)
    assert [line for line in lines if line.startswith("unstable: ")] == [
        "unstable: 10 of 13 queries, CV up to 61% (10% is high)"
    ]


def test_below_a_table_there_are_three_notes_at_most_the_gravest_first() -> None:
    result = open_loop({1: [900.0, 901.0, 1500.0], 4: [950.0]}, saturated=True)
    result.complete = False
    for group_run in result.writers:
        group = group_run.group
        group.window_s, group.retries, group.errors = 3.0, 2, {"timeout": 2}
        group.invalid_reasons = ["late"] if group_run.run.run == 2 else []
    lines = summarize_notes(result, False, "Open loop.", None)
    assert len(lines) == 1 + MOST_NOTES + 1
    assert lines[0] == "Open loop."
    assert [line.partition(": ")[0] for line in lines[1:]] == [
        "incomplete", "invalid", "saturated", "more",
    ]  # fmt: skip
    assert lines[3].startswith("saturated: 3 runs, as in 1 worker, run 1: did not keep up with")
    assert lines[4].endswith(" (-v, or `results show`)")
    verbose = summarize_notes(result, False, "Open loop.", None, verbose=True)
    assert verbose == ["Open loop.", *list_notes(result, False)]
    for kind in ("retries", "short", "unstable", "few runs"):
        assert kind in lines[4]


def test_bottlenecks_are_told_in_a_line() -> None:
    result = read_result(STORED.parents[2] / "img" / "results" / "demo-insert.json")
    assert summarize_notes(result, False)[0].startswith(
        "bottleneck: waiting (1 worker); unknown (2 workers and 4 workers); 4 workers: the database used 66%"
    )
