"""What a search comes to: the figures, the words, its limitations, and where results show it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cli.results.answers import Capacity, CapacityStep
from cli.results.caveats import Kind
from cli.results.comparison import compare
from cli.results.export import list_rows
from cli.results.model import Result
from cli.results.verdicts import find_caveats, summarize_doubts
from cli.run.experiments.search import judge_run
from cli.show.charts import describe_saturation
from cli.show.comparison import describe_comparison
from cli.show.points import read_steps
from cli.show.searches import describe_capacity, tabulate_capacity
from cli.show.stored import describe_result
from cli.show.words import (
    describe_measurement,
    describe_stability,
    describe_validity,
    write_headline,
)
from simulator.contract import Measure, RunLimit

from ...made import capacity, stored


def found_in(result: Result) -> Capacity:
    assert result.capacity is not None
    return result.capacity


def kinds(result: Result) -> set[Kind]:
    return {caveat.kind for caveat in find_caveats(result)}


def test_the_answer_in_devices_on_disk_by_cpu_and_money() -> None:
    result = capacity(cost_per_hour=2.0)
    answer = found_in(result)
    low, high = answer.events_per_s, answer.above_per_s
    assert answer.sure
    assert low is not None
    assert high is not None
    assert low <= 50_000 < high <= 1.05 * low
    # As the workload temperature has it.
    assert (answer.device_interval_s, answer.devices) == (0.45, low * 0.45)
    assert answer.bytes_per_day == 100 * low * 86_400
    assert (answer.database_cpus, answer.events_per_s_per_cpu) == (2.0, low / 2)
    assert answer.events_per_cost == low * 1800
    lines = describe_capacity(result)
    assert (
        lines[0] == f"Capacity: {low:,.10g} events/s within p99=100ms; {high:,.10g} doesn't hold."
    )
    p99 = answer.missed[0].figures["p99"]
    assert lines[1] == f"What broke: inserts p99 {p99:.0f} ms > 100 ms at {high:,.10g} events/s."
    assert lines[2] == (
        f"{low:,.10g} events/s mean {low * 0.45:,.0f} devices that send an event every 0.45 s; 428 GB a day"
        f" on disk; {low / 2:,.0f} events/s for each of the database's 2 CPUs; 0.011 per million"
        " events (at 2 an hour)."
    )
    # No step was at its limit but for the closed loop.
    assert lines[3].startswith(
        "Bottleneck above it (in the closed loop): database CPU: the database used"
    )
    assert write_headline(result) == f"{low:,.10g} events/s within p99=100ms"
    assert describe_measurement(result) == (
        "Capacity of alpha (PostgreSQL 18.4): the highest rate of inserts within p99=100ms by 4 workers,"
        f" in {len(answer.steps) - 1} steps of 30 s, from processes on one machine on 2025-01-02."
    )
    assert (describe_validity(result), describe_stability(result)) == ("yes", "yes")
    assert kinds(result) == set()


def test_each_step_is_a_row_with_its_verdict() -> None:
    result = capacity(limits=["p99=100ms", "p90=19ms", "error_share=1%"])
    table = tabulate_capacity(result, terminal=False)
    assert list(table.headers)[-4:] == ["Client CPU", "p90", "error_share", "Verdict"]
    assert table.rows[0][:2] == ["-", "closed loop"]
    assert table.rows[0][-1] == "-"
    assert table.rows[1] == [
        "1", "70,000", "70,000", "70,000", "14", "140", "280", "1.25", "20%", "28 ms", "0%",
        "p99 140 ms; p90 28 ms",
    ]  # fmt: skip
    assert table.rows[2][-1] == "holds"


def test_what_was_due_by_chance_stands_beside_the_rate() -> None:
    result = capacity()
    answer = found_in(result)
    for step in answer.steps_at_answer:
        (group,) = [
            group_run.group for group_run in result.writers if group_run.run.run == step.run
        ]
        assert group.offered is not None and group.window_s is not None
        group.offered.due = int(1.08 * (step.rate_per_s or 0) * group.window_s)
    due = 1.08 * (answer.events_per_s or 0)
    table = tabulate_capacity(result, terminal=False)
    assert list(table.headers)[1:3] == ["Rate", "Offered/s"]
    assert [f"{answer.events_per_s:,.10g}", f"{due:,.0f}"] in [list(row[1:3]) for row in table.rows]
    (sentence,) = [line for line in describe_capacity(result) if "random" in line]
    assert sentence == (
        f"Because arrivals are random, {due:,.0f} events/s were due in the"
        f" {len(answer.steps_at_answer)} steps at this rate."
    )


def test_a_step_without_a_verdict_says_why() -> None:
    result = capacity()
    step = found_in(result).steps[1]
    step.holds, step.reasons = None, ["too few requests: 3, and 100 are needed"]
    table = tabulate_capacity(result, terminal=False)
    assert table.rows[1][-1] == "no verdict; too few requests: 3, and 100 are needed"


def test_a_client_that_was_the_limit_makes_it_at_least() -> None:
    result = capacity(at=40_000, client_bound=True)
    answer = found_in(result)
    assert answer.client_bound
    assert (
        write_headline(result) == f"at least {answer.events_per_s:,.10g} events/s within p99=100ms"
    )
    assert "but the client was the limit there" in describe_capacity(result)[0]
    assert "client CPU: much to do" in describe_capacity(result)[3]
    assert kinds(result) == {Kind.CLIENT_BOUND}
    assert "your client is" in summarize_doubts(result)[0]


def _missed(figures: Mapping[str, float], *reasons: str) -> CapacityStep:
    return CapacityStep(
        run=1, rate_per_s=800, holds=False, figures=dict(figures), reasons=list(reasons)
    )


def test_the_limit_that_broke_in_most_steps_is_named_first() -> None:
    """Then the one that was broken by the most; what else held a step back, only if no limit broke."""
    answer = Capacity(
        precision=0.05,
        limits=[
            RunLimit(measure=Measure.P99, at_most=100),
            RunLimit(measure=Measure.P90, query="range", at_most=100),
        ],
        events_per_s=700,
        above_per_s=800,
        steps=[
            _missed({"p99": 300, "query:range:p90": 127}, "saturated: achieved 98%"),
            _missed({"p99": 20, "query:range:p90": 140}),
        ],
    )
    assert answer.why == (
        "range p90 127 ms to 140 ms > 100 ms; inserts p99 300 ms > 100 ms at 800 events/s"
    )
    answer.steps = [_missed({"p99": 20}, "saturated: achieved 90% of what was due")]
    assert answer.why == "saturated: achieved 90% of what was due at 800 events/s"
    answer.steps = [_missed({}).model_copy(update={"rate_per_s": 900})]
    assert answer.why is None


def test_what_the_chart_calls_saturated_does_not_hold() -> None:
    """A step below the line is saturated and doesn't hold, or its rest was under way, which is said."""
    result = capacity()
    runs = {run.run: run for run in result.runs}
    steps = [step for step in found_in(result).steps if step.rate_per_s is not None]
    assert "except" not in describe_saturation(read_steps({"x": [result]}))
    for step in steps:
        offered = runs[step.run].groups[0].offered
        assert offered is not None
        offered.achieved, offered.saturated = round(0.96 * offered.due), True
        assert not judge_run(runs[step.run], [], 100).holds
    assert "except" not in describe_saturation(read_steps({"x": [result]}))
    held = runs[found_in(result).steps_at_answer[0].run].groups[0].offered
    assert held is not None
    held.saturated = False
    assert describe_saturation(read_steps({"x": [result]})).endswith(
        "doesn't hold, except 1 step whose remaining requests were in flight at the end, or within chance."
    )


def test_too_few_steps_make_it_unsure() -> None:
    result = capacity(max_steps=3)
    assert write_headline(result) == "between 49,500 and 70,000 events/s within p99=100ms"
    assert describe_capacity(result)[0].endswith("p99=100ms; 3 steps were not enough to be sure.")
    assert kinds(result) == {Kind.UNSURE}
    assert describe_stability(result) == "no"


def test_no_rate_or_each_rate() -> None:
    none = capacity(limits=["p50=1us"])
    assert found_in(none).events_per_s is None
    # Below 520 events/s a step would have too few requests.
    assert write_headline(none) == "below 520 events/s within p50=0.001ms"
    assert describe_capacity(none)[0].startswith(
        "Capacity: below 520 events/s within p50=0.001ms; lower rates have too few requests in a step"
    )
    assert none.valid
    below = capacity(limits=["p50=1us"], max_steps=2)
    assert write_headline(below) == "below 35,000 events/s within p50=0.001ms"
    assert describe_capacity(below)[0] == (
        "Capacity: below 35,000 events/s within p50=0.001ms; 2 steps were not enough to be sure."
    )
    each = capacity(max_steps=1, limits=[])
    assert write_headline(each) == "at least 70,000 events/s"
    assert describe_capacity(each)[0].startswith(
        "Capacity: at least 70,000 events/s without falling behind: each rate that was tried holds;"
    )


def test_steps_that_say_otherwise_are_told() -> None:
    result = capacity()
    answer = found_in(result)
    answer.steps[2].holds = True
    answer.steps[2].rate_per_s = 90_000
    answer.contradicting = [answer.steps[2].run]
    (text,) = [caveat.text for caveat in find_caveats(result) if caveat.kind is Kind.UNSTABLE]
    assert text == (
        "1 step contradicts this (90,000 held): the database seems to have become slower during the search"
    )


def test_a_p99_of_few_requests_is_said_to_be_one() -> None:
    result = capacity(at=3_000)
    (text,) = [caveat.text for caveat in find_caveats(result) if caveat.kind is Kind.FEW_RUNS]
    assert "requests, too few to judge the slowest: give a longer --step-duration" in text


def test_results_show_compare_and_the_export_know_it() -> None:
    result = capacity()
    shown = describe_result(stored(result), terminal=False)
    for part in (
        "Capacity: ",
        "\nSteps\n",
        "closed loop",
        "Response times of a request",
        "p99=100ms",
    ):
        assert part in shown
    compared = describe_comparison(["one", "two"], [result, capacity(at=30_000)], markdown=False)
    for part in (
        "one (PostgreSQL 18.4)",
        "Lowest that failed",
        "p99=100ms",
        "428 GB",
        "24,750",
        "slower",
    ):
        assert part in compared
    # Nothing has a cost.
    assert "Cost/million" not in compared
    rows = list_rows(stored(result))
    assert (rows[0]["rate_per_s"], rows[0]["holds"]) == (None, None)
    assert (rows[1]["rate_per_s"], rows[1]["holds"]) == (70_000, False)


def test_capacities_are_compared_by_their_intervals() -> None:
    base, other, near = capacity(at=30_000), capacity(at=60_000), capacity(at=30_100)
    (slower, same) = compare([other, base, near]), compare([base, near])
    (comparison, _) = slower
    first, second = found_in(other), found_in(base)
    assert comparison.figure == second.events_per_s
    assert first.events_per_s
    assert first.above_per_s
    assert second.events_per_s
    assert second.above_per_s
    assert str(comparison.place) == "capacity"
    assert comparison.speed.value == pytest.approx(second.events_per_s / first.events_per_s)
    assert comparison.speed.interval == pytest.approx(
        (second.events_per_s / first.above_per_s, second.above_per_s / first.events_per_s)
    )
    assert comparison.verdict == "slower"
    assert same[0].verdict == "no difference shown"
    assert same[0].speed.alike
