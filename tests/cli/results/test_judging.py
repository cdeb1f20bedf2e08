"""What results say about requirements: which runs count, and what they are samples of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cli.plan.target import Price
from cli.plan.values import parse_limit
from cli.results.decision import Cell, Status, VerdictMatrix
from cli.results.judging import judge
from cli.results.loads import Measured, Question, Repetition
from cli.results.model import Result
from cli.results.requirements import Requirements
from simulator.contract import (
    GAP_S,
    CatchUp,
    Deletion,
    DeletionCost,
    GroupResult,
    IntervalFigures,
    LatencyMs,
    Level,
    Machine,
    Mark,
    Offered,
    Outage,
    QueryResult,
    Resources,
    RetentionResult,
    Role,
    Storage,
)

from ..made import ENVIRONMENT, capacity, client, disturbed, open_loop, stored

NEEDED: dict[str, Any] = {"events_per_s": 1000, "insert": {"p99": "250ms"}}


def _load(p99: float = 100.0, rate: float = 1000.0, level: int = 0, **changes: Any) -> Result:
    """A run at this rate, on so many events, whose p99 is so many milliseconds."""
    result = open_loop({2: [rate]}, rate_per_s=rate, **changes)
    result.label = "alpha load 1"
    for group_run in result.writers:
        group_run.run.fill_level = level
        group_run.group.latency_ms = LatencyMs(p50=1, p90=2, p99=p99, p99_9=2 * p99, max=3 * p99)
    return result


def _ask(result: Result, p99: float | None, rate: float = 2.0, saturated: bool = False) -> Result:
    """The same result with a query beside the inserts."""
    times = LatencyMs(p50=1, p90=2, p99=p99, max=10)
    due = round(20 * rate)
    offered = Offered(
        rate_per_s=rate, due=due, achieved=due, backlog_max=1, backlog_growth=0, saturated=saturated,
        reason="much was left" if saturated else None,
    )  # fmt: skip
    executions = due if p99 is None else 200
    query = QueryResult(query="last", executions=executions, latency_ms=times)
    readers = GroupResult(role=Role.READ, workers=1, offered=offered, queries=[query], window_s=20)
    result.runs[0].groups.append(readers)
    options = {**result.options, "queries": {"last": rate}, "query_rate_per_s": rate}
    return result.model_copy(update={"command": "mixed", "options": options})


def _judge(
    needed: dict[str, Any], *turns: Sequence[Result], price: Price | None = None, **repetition: Any
) -> VerdictMatrix:
    """The verdict on one candidate with these repetitions."""
    repetitions = [
        Repetition(
            number,
            [stored(result, f"{number}-{place}") for place, result in enumerate(results)],
            **repetition,
        )
        for number, results in enumerate(turns, 1)
    ]
    question = Question(Requirements.model_validate(needed), float(needed["events_per_s"]))
    return judge(question, "T", [Measured("alpha", repetitions, price or Price())], len(turns), 0)


def _cell(verdict: VerdictMatrix, key: str) -> Cell:
    return verdict.candidates[0].find(key)


def test_a_load_that_is_kept_is_met() -> None:
    verdict = _judge(NEEDED, [_load(100)], [_load(110)])
    load, p99 = _cell(verdict, "events_per_s"), _cell(verdict, "insert.p99")
    assert (load.status, load.shown, load.headroom) == (Status.MET, "kept up", None)
    assert p99.status is Status.MET
    assert p99.headroom == pytest.approx(2.38, abs=0.01)
    assert [evidence.result for evidence in p99.evidence] == ["1-0", "2-0"]
    assert (p99.evidence[0].label, p99.evidence[0].runs) == ("alpha load 1", [1])
    assert verdict.candidates[0].narrowest == "insert.p99"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": 500.0}, "alpha load 1 offered 500 events/s"),
        ({"rate": 1500.0}, "alpha load 1 offered 1,500 events/s"),
        ({"options": {"batch": 10}}, "measured in batches of 10, not of 100"),
        ({"level": 5}, "measured on 5 events, not on the history's 1,000"),
    ],
)
def test_a_run_under_other_conditions_doesnt_count(changes: dict[str, Any], said: str) -> None:
    needed = {**NEEDED, "insert": {"p99": "250ms", "batch": 100}, "history": {"events": 1000}}
    good = {"level": 1000}
    assert (
        _cell(_judge(needed, [_load(**good)], [_load(**good)]), "insert.p99").status is Status.MET
    )
    other = {**good, **changes}
    cell = _cell(_judge(needed, [_load(**other)], [_load(**other)]), "insert.p99")
    assert (cell.status, cell.reason) == (Status.UNDECIDED, said)


@pytest.mark.parametrize(
    ("had", "keeps"),
    [
        ({}, False),
        ({"prefill_span_s": 86_400, "prefill_every_s": 600}, True),
        ({"prefill_span_s": 172_800, "prefill_every_s": 60}, True),
        ({"prefill_span_s": 80_000, "prefill_every_s": 600}, False),
        ({"prefill_span_s": 86_400, "prefill_every_s": 700}, False),
    ],
)
def test_a_coarse_history_must_have_been_there(had: dict[str, Any], keeps: bool) -> None:
    needed = {**NEEDED, "history": {"span": "1d", "every": "10m"}}
    loads = [_load(options=had) for _ in range(2)]
    cell = _cell(_judge(needed, *([load] for load in loads)), "insert.p99")
    reason = "measured without the history of 1d, one event per device every 10m"
    assert (cell.status is Status.MET) == keeps
    assert keeps or (cell.status, cell.reason) == (Status.UNDECIDED, reason)


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [
        (
            ["on", "off"],
            Status.MISSED,
            "on disk when the operating system writes it: set fsync=on",
        ),
        (["on", "on"], Status.MET, None),
        (["on"], Status.MET, None),
        ([None, None], Status.UNDECIDED, "it didn't tell fsync"),
    ],
)
def test_an_event_must_be_on_disk(
    settings: list[str | None], status: Status, said: str | None
) -> None:
    """By the settings that were in effect, and by a single repetition: they don't vary by chance."""
    loads = [
        _load().model_copy(
            update={
                "environment": ENVIRONMENT
                | {"database": {"settings": {"fsync": value, "synchronous_commit": "on"}}}
            }
        )
        for value in settings
    ]
    verdict = _judge(
        {**NEEDED, "durability": {"acknowledged": "on-disk"}}, *([load] for load in loads)
    )
    cell = _cell(verdict, "durability")
    assert (cell.status, cell.reason) == (status, said)
    worth = verdict.candidates[0].acknowledgement
    assert worth is not None
    assert worth.on_disk is {"met": True, "missed": False, "undecided": None}[status]
    assert (worth.places, worth.client) == (1, "lean")


def _keep_busy(result: Result, share: float = 0.79) -> Result:
    for run in result.runs:
        run.machines = [Machine(node="n", others_share=share)]
    return result


@pytest.mark.parametrize("p99", [100, 900])
def test_a_busy_machine_decides_nothing_that_depends_on_the_load(p99: float) -> None:
    quiet = _judge(NEEDED, [_load(p99)], [_load(p99)])
    decided = _cell(quiet, "insert.p99").status
    assert decided is not Status.UNDECIDED
    busy = _judge(NEEDED, [_keep_busy(_load(p99))], [_keep_busy(_load(p99))])
    cell = _cell(busy, "insert.p99")
    assert cell.status is Status.UNDECIDED
    assert cell.reason == (
        "other programs used 79% of the CPU: an idle machine would decide (without that:"
        f" {decided})"
    )
    # The others decide without the busy one, unless it is needed.
    enough = _judge(NEEDED, [_keep_busy(_load(p99))], [_load(p99)], [_load(p99)])
    assert _cell(enough, "insert.p99").status is decided
    few = _judge(NEEDED, [_keep_busy(_load(p99))], [_load(p99)])
    assert _cell(few, "insert.p99").status is Status.UNDECIDED


def test_what_doesnt_depend_on_the_load_is_decided_on_a_busy_machine() -> None:
    needed = {**NEEDED, "cost_per_month": 1000}
    verdict = _judge(needed, [_keep_busy(_load())], [_keep_busy(_load())], price=Price(hour=1))
    assert _cell(verdict, "cost_per_month").status is Status.MET
    assert _cell(verdict, "insert.p99").status is Status.UNDECIDED


def test_trust_stands_by_the_candidate_and_for_all() -> None:
    verdict = _judge(NEEDED, [_keep_busy(_load(), 0.4)], [_keep_busy(_load())], [_load()])
    for trust in (verdict.trust, verdict.candidates[0].trust):
        assert str(trust) == "Trust: low (other programs used 79% of the CPU)"
    assert str(_judge(NEEDED, [_load()], [_load()]).trust) == "Trust: good"
    assert _judge(NEEDED, []).trust is None


def test_without_the_questions_beside_it_a_load_isnt_the_one_that_is_required() -> None:
    needed = {**NEEDED, "queries": {"last": {"p99": "1s", "rate": 2}}}
    alone = _cell(_judge(needed, [_load()], [_load()]), "insert.p99")
    assert alone.reason == "measured without last 2 times a second beside it"
    verdict = _judge(needed, [_ask(_load(), 400)], [_ask(_load(), 410)])
    assert {cell.status for cell in verdict.candidates[0].cells} == {Status.MET}
    rarely = _judge(needed, [_ask(_load(), 400, rate=1)], [_ask(_load(), 410, rate=1)])
    assert _cell(rarely, "queries.last.p99").status is Status.UNDECIDED


def test_too_few_executions_say_what_would_decide() -> None:
    needed = {**NEEDED, "queries": {"last": {"p99": "1s", "rate": 2}}}
    cell = _cell(_judge(needed, [_ask(_load(), None)]), "queries.last.p99")
    assert cell.reason == "40 executions, and p99 needs 100: a longer run would decide"


def test_a_lower_percentile_above_the_limit_misses_it_all_the_same() -> None:
    needed = {**NEEDED, "queries": {"last": {"p99": "1ms", "rate": 2}}}
    cell = _cell(_judge(needed, *([_ask(_load(), None)] for _ in range(2))), "queries.last.p99")
    assert (cell.status, cell.reason) == (Status.MISSED, "p90 2 ms")


def test_saturated_is_missed_unless_it_was_the_client() -> None:
    results = [_load(90, saturated=True) for _ in range(2)]
    for result in results:
        result.runs[0].groups[0].service_ms = LatencyMs(p50=1, p90=2, p99=300, max=400)
    verdict = _judge(NEEDED, *([result] for result in results))
    assert {cell.status for cell in verdict.candidates[0].cells} == {Status.MISSED}
    assert "saturated: 20,000 events were due" in (_cell(verdict, "events_per_s").reason or "")
    for result in results:
        result.runs[0].groups[0].client = client(0.9, bound=True)
    bound = _judge(NEEDED, *([result] for result in results))
    assert {cell.status for cell in bound.candidates[0].cells} == {Status.UNDECIDED}
    assert "the client was the limit" in (_cell(bound, "insert.p99").reason or "")


def test_too_few_places_for_so_many_at_once_show_nothing() -> None:
    """One reader for two questions a second that may take a second each: if it doesn't keep up, a second one
    might. One that takes longer than it may is judged without a second."""
    needed = {**NEEDED, "queries": {"last": {"p99": "1s", "rate": 2}}}

    def judge_service(service_ms: float) -> Cell:
        results = [_ask(_load(), 4000, saturated=True) for _ in range(2)]
        for result in results:
            times = LatencyMs(p50=1, p90=2, p99=service_ms, max=service_ms)
            result.runs[0].groups[1].service_ms = times
        verdict = _judge(needed, *([result] for result in results))
        assert _cell(verdict, "events_per_s").status is _cell(verdict, "queries.last.p99").status
        return _cell(verdict, "queries.last.p99")

    few = judge_service(800)
    assert few.status is Status.UNDECIDED
    assert "more readers, or reader-in-flight, 2 in all, would decide" in (few.reason or "")
    assert judge_service(1200).status is Status.MISSED


def test_readers_that_dont_keep_up_miss_the_load() -> None:
    needed = {**NEEDED, "queries": {"last": {"p99": "1s", "rate": 2}}}
    slow = [[_ask(_load(), 400, saturated=True)] for _ in range(2)]
    verdict = _judge(needed, *slow)
    assert _cell(verdict, "events_per_s").reason == "readers saturated: much was left"
    assert _cell(verdict, "queries.last.p99").status is Status.MISSED
    assert _cell(verdict, "insert.p99").status is Status.MET


def test_an_invalid_run_and_a_failed_job_are_no_figures() -> None:
    broken = _load()
    broken.runs[0].groups[0].invalid_reasons = ["3 events are missing"]
    cell = _cell(_judge(NEEDED, [_load()], [broken]), "insert.p99")
    assert cell.status is Status.UNDECIDED
    assert "invalid: 3 events are missing" in (cell.reason or "")
    failed = _judge(NEEDED, [], failed=["alpha load 1 failed: it was away"])
    assert _cell(failed, "insert.p99").reason == "alpha load 1 failed: it was away"


def test_a_turn_that_isnt_over_says_nothing_yet() -> None:
    verdict = _judge(NEEDED, [], [], ended=False)
    assert {cell.reason for cell in verdict.candidates[0].cells} == {"not measured yet"}


def test_a_search_within_the_limits_gives_the_headroom() -> None:
    searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
    cell = _cell(_judge(NEEDED, *([_load(), search] for search in searches)), "events_per_s")
    assert cell.status is Status.MET
    assert cell.headroom is not None
    assert cell.headroom > 5  # p99 reaches 250 ms at 6,250 events/s
    assert cell.shown.startswith("holds ")
    assert [evidence.result for evidence in cell.evidence] == ["1-0", "1-1", "2-0", "2-1"]
    # One with wider limits isn't within these.
    wide = [capacity(at=2500.0, limits=["p99=300ms"]) for _ in range(2)]
    other = _cell(_judge(NEEDED, *([_load(), search] for search in wide)), "events_per_s")
    assert (other.status, other.shown) == (Status.MET, "kept up")


def test_a_search_that_tried_only_more_than_the_load_doesnt_doubt_it() -> None:
    """Its steps were too short for lower rates."""
    searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
    for search in searches:
        assert search.capacity is not None
        search.capacity.events_per_s, search.capacity.above_per_s = None, 6500.0
    with_load = _cell(_judge(NEEDED, *([_load(), search] for search in searches)), "events_per_s")
    assert (with_load.status, with_load.shown) == (Status.MET, "kept up")
    alone = _cell(_judge(NEEDED, *([search] for search in searches)), "events_per_s")
    assert alone.reason == "the search found no rate that holds"


def test_a_search_within_a_lower_percentile_says_nothing_about_the_required_one() -> None:
    needed = {**NEEDED, "queries": {"last": {"p99": "1s", "rate": 2}}}
    options = {"queries": {"last": 2.0}, "query_rate_per_s": 2.0}
    for limit, status in (("p90=1s", Status.UNDECIDED), ("p99=1s", Status.MET)):
        searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
        for search in searches:
            assert search.capacity is not None
            search.options |= options
            search.capacity.limits.append(parse_limit(f"query:last:{limit}"))
        verdict = _judge(needed, *([search] for search in searches))
        assert _cell(verdict, "events_per_s").status is status


def test_a_search_below_the_load_misses_it() -> None:
    needed = {**NEEDED, "events_per_s": 50_000}
    searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
    low = _cell(_judge(needed, *([search] for search in searches)), "events_per_s")
    assert low.status is Status.MISSED
    assert "within the limits" in (low.reason or "")
    # Unless the load itself was within them.
    with_load = _cell(
        _judge(needed, *([_load(rate=50_000.0), search] for search in searches)), "events_per_s"
    )
    assert with_load.status is Status.UNDECIDED
    assert "yet the load itself was within all limits" in (with_load.reason or "")


def test_what_deleting_by_age_costs_is_a_line_and_no_load() -> None:
    """At a compressed clock it says nothing of the load itself."""
    deleting = _load()
    stretch = IntervalFigures(seconds=5, rate_per_s=1000.0, p99_ms=4.0)
    slow = IntervalFigures(seconds=5, rate_per_s=900.0, p99_ms=400.0)
    for run in deleting.runs:
        run.retention = RetentionResult(period_s=1, step_s=1, deletions=[])
        cost = DeletionCost(before=stretch, during=slow, between=stretch)
        run.groups[0].deletion_cost = cost
    verdict = _judge({**NEEDED, "retention": "10d"}, [deleting], [deleting])
    assert all(cell.status is Status.UNDECIDED for cell in verdict.candidates[0].cells)
    notes = [note for note in verdict.notes if ", retention: " in note]
    assert len(notes) == 1
    assert "inserts lost 10% in the 5 s in which one ran" in notes[0]
    assert not any("not measured" in note for note in verdict.notes)
    unmeasured = _judge({**NEEDED, "retention": "10d"}, [_load()], [_load()])
    assert any("and its cost, were not measured" in note for note in unmeasured.notes)


def _weigh(result: Result, size: float) -> Result:
    """The same result, with so many bytes per event between the middle of the run and its end."""
    group = result.runs[0].groups[0]
    for name, events in (("storage_during", 10**7), ("storage", 4 * 10**7)):
        total = int(size * events) + 10**8
        level = Level(size_bytes=total, events=events)
        setattr(group, name, Storage(total_bytes=total, events=events, level=level))
    group.count = 4 * 10**7
    return result


def test_disk_is_growth_times_rate_times_retention() -> None:
    needed = {**NEEDED, "retention": "10d", "disk": "100GB"}
    results = [_weigh(_load(), size) for size in (100.0, 101.0)]
    verdict = _judge(needed, *([result] for result in results), price=Price(hour=1.0, gb_month=0.5))
    cell = _cell(verdict, "disk")
    assert cell.status is Status.MET
    assert cell.value == pytest.approx(100.5 * 1000 * 864_000, rel=1e-3)
    candidate = verdict.candidates[0]
    assert candidate.disk_bytes == cell.value
    assert candidate.cost_per_month == pytest.approx(730 + 86.83 * 0.5, rel=1e-3)
    assert candidate.price == "1 an hour, 86.8 GB at 0.5 per GB and month"
    assert any("the deletion of older events" in note for note in verdict.notes)


def test_what_compaction_leaves_counts_and_not_what_most_events_take() -> None:
    needed = {**NEEDED, "retention": "10d", "disk": "100GB"}
    large, compacted = _weigh(_load(), 100.0), _weigh(_load(), 100.0)
    group = compacted.runs[0].groups[0]
    assert group.storage is not None and group.storage.total_bytes
    large.runs[0].groups[0].count = 10**8
    group.storage_compacted = Storage(total_bytes=group.storage.total_bytes // 2)
    cell = _cell(_judge(needed, [large, compacted]), "disk")
    assert [evidence.result for evidence in cell.evidence] == ["1-1"]
    assert cell.value == pytest.approx(50 * 1000 * 864_000, rel=1e-3)


def test_headroom_of_a_part_of_the_repetitions_says_so() -> None:
    searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
    last = searches[1].capacity
    assert last is not None
    last.events_per_s, last.above_per_s = None, 6500.0
    cell = _cell(_judge(NEEDED, *([_load(), search] for search in searches)), "events_per_s")
    assert cell.status is Status.MET
    assert cell.shown.endswith(" events/s in 1 of 2")


def test_a_price_that_is_known_needs_no_measurement() -> None:
    needed = {**NEEDED, "cost_per_month": 800}
    dear = _judge(needed, [], ended=False, price=Price(hour=2.0))
    # Nothing was measured, and no turn is over.
    assert _cell(dear, "cost_per_month").shown == "1,460"
    assert _cell(dear, "cost_per_month").status is Status.MISSED
    cheap = _judge(needed, [_load()], price=Price(hour=1.0))
    assert _cell(cheap, "cost_per_month").status is Status.MET
    unknown = _judge(needed, [_load()])
    assert "no price is known" in (_cell(unknown, "cost_per_month").reason or "")


def test_the_price_of_cpus_is_of_those_that_the_database_may_use() -> None:
    needed = {**NEEDED, "cost_per_month": 800}
    results = [_load() for _ in range(2)]
    for result in results:
        result.runs[0].resources = Resources(cpus=4.0)
    verdict = _judge(needed, *([result] for result in results), price=Price(cpu_hour=0.1))
    assert _cell(verdict, "cost_per_month").value == pytest.approx(292)
    assert any("available to the database" in note for note in verdict.notes)


def _strike(gap_s: float, missing: int = 0, rate: float = 1000.0) -> Result:
    result = disturbed((10.0, gap_s))
    run = result.runs[0]
    group = run.groups[0]
    run.marks[0].action = "10s kill-server"
    group.window_s = 40.0
    group.offered = Offered(
        rate_per_s=rate, due=100, achieved=100, backlog_max=1, backlog_growth=0, saturated=False
    )
    assert group.lookup is not None
    group.lookup.missing = missing
    return result


FAULT = {"events_per_s": 1000, "faults": {"kill-server": "10s"}}


@pytest.mark.parametrize(
    ("results", "status", "said"),
    [
        ([_strike(4), _strike(4.2)], Status.MET, None),
        ([_strike(12), _strike(12.5)], Status.MISSED, None),
        ([_strike(4), _strike(4.2, missing=3)], Status.MISSED, "3 acknowledged events lost"),
        ([_strike(4, rate=10), _strike(4, rate=10)], Status.UNDECIDED, "load was not offered"),
    ],
)
def test_a_fault_has_an_outage_and_loses_nothing(
    results: list[Result], status: Status, said: str | None
) -> None:
    cell = _cell(_judge(FAULT, *([result] for result in results)), "faults.kill-server")
    assert cell.status is status
    assert (said or "") in (cell.reason or "")
    assert "lost" not in (said or "") or cell.shown == "3 events lost"


def test_an_outage_that_isnt_seen_is_below_what_can_be() -> None:
    cell = _cell(_judge(FAULT, [_strike(0)], [_strike(0)]), "faults.kill-server")
    assert (cell.status, cell.value) == (Status.MET, GAP_S)


def test_an_outage_that_outlasts_the_run_isnt_over() -> None:
    late = _strike(4)
    late.runs[0].groups[0].outages = [Outage(gap_s=4.0, gap_began_s=36.0, recovered_after_s=None)]
    cell = _cell(_judge(FAULT, [late], [late]), "faults.kill-server")
    assert "the run ended before the rate recovered" in (cell.reason or "")


PAUSED = {"events_per_s": 1000, "faults": {"pause-fleet 20s": "5s"}}


def _cut_off(after_s: float | None, missing: int = 0) -> Result:
    """The fleet was cut off from 10 to 30 s, of a run of 40."""
    result = _strike(20.1, missing)
    run = result.runs[0]
    run.marks[0] = Mark(at_s=10.0, ended_s=30.0, action="10s pause-fleet 20s")
    run.groups[0].catch_ups = [
        CatchUp(begins_s=10.0, ends_s=30.0, held=20_000, after_s=after_s, lateness_s=20.5)
    ]
    return result


@pytest.mark.parametrize(
    ("after_s", "missing", "status", "value"),
    [
        (2.5, 0, Status.MET, 2.5), (6.0, 0, Status.MISSED, 6.0), (2.5, 1, Status.MISSED, None),
        # It took the rest of the run at least.
        (None, 0, Status.MISSED, 10.0),
    ],
)  # fmt: skip
def test_of_a_fleet_that_was_cut_off_catching_up_counts(
    after_s: float | None, missing: int, status: Status, value: float | None
) -> None:
    results = [[_cut_off(after_s, missing)], [_cut_off(after_s, missing)]]
    cell = _cell(_judge(PAUSED, *results), "faults.pause-fleet 20s")
    assert cell.status is status
    assert cell.value == pytest.approx(value)


def test_runs_with_a_fault_dont_count_for_the_load() -> None:
    needed = {**FAULT, "insert": {"p99": "250ms"}}
    cell = _cell(_judge(needed, [_strike(4)], [_strike(4)]), "insert.p99")
    assert cell.reason == "nothing was measured at 1,000 events/s"


def test_the_verdict_can_be_read_again() -> None:
    verdict = _judge(NEEDED, [_load(100)], [_load(110)])
    assert VerdictMatrix.model_validate_json(verdict.model_dump_json()) == verdict


# --- scale ----------------------------------------------------------------------------------------

LONG: dict[str, Any] = {
    "events_per_s": 1000, "insert": {"p99": "250ms"}, "retention": "10d",
    "queries": {"last": {"p99": "1s", "rate": 2}},
}  # fmt: skip
"""864M events in the end."""


def _turn(
    low_ms: float, high_ms: float, low: int = 4_000_000, high: int = 40_000_000, **memory: int
) -> list[Result]:
    """The load on two fill levels: a query takes so long."""
    results = [_ask(_load(level=level), p99) for level, p99 in ((low, low_ms), (high, high_ms))]
    for result in results:
        run = result.runs[0]
        run.resources = Resources(memory_bytes=memory["memory"]) if memory else None
        run.groups[0].storage = Storage(
            total_bytes=100 * (run.fill_level or 0), events=run.fill_level
        )
    return results


def test_a_query_that_grows_is_judged_by_what_is_stored_in_the_end() -> None:
    grows = _judge(LONG, _turn(20, 100), _turn(20.3, 100), _turn(20.1, 100))
    cell = _cell(grows, "queries.last.p99")
    assert cell.scale is not None
    assert cell.scale.exponent is not None
    assert cell.scale.exponent.mean == pytest.approx(0.696, abs=0.005)
    # 100 ms × 21.6^0.7: below a second.
    assert cell.status is Status.MET
    assert cell.value == pytest.approx(100)
    assert cell.headroom == pytest.approx(1.18, abs=0.02)
    scan = _cell(_judge(LONG, _turn(10, 100), _turn(10.1, 100)), "queries.last.p99")
    assert scan.status is Status.MISSED
    assert "on 864M events" in (scan.reason or "")
    # Of inserts, whose times stay, nothing is said against.
    assert _cell(grows, "insert.p99").status is Status.MET


def test_each_cell_says_on_how_much_it_was_measured() -> None:
    fits = _judge(LONG, _turn(20, 20, memory=10**10), _turn(20, 20, memory=10**10))
    scales = [cell.scale for cell in fits.candidates[0].cells]
    assert [(scale.events, scale.in_memory) for scale in scales if scale] == 3 * [
        (40_000_500, True)
    ]
    assert any("864M events are stored at full retention" in note for note in fits.notes)
    swaps = _judge(LONG, _turn(20, 20, memory=10**9), _turn(20, 20, memory=10**10))
    scale = _cell(swaps, "insert.p99").scale
    assert scale is not None
    assert scale.in_memory is False
    said = _judge({**LONG, "memory": "1GB"}, _turn(20, 20), _turn(20, 20))
    scale = _cell(said, "insert.p99").scale
    assert scale is not None
    assert scale.in_memory is False


def test_on_too_few_events_nothing_is_met() -> None:
    turns = [_turn(20, 20, 10**5, 10**6) for _ in range(2)]
    cells = _judge(LONG, *turns).candidates[0].cells
    assert {cell.status for cell in cells} == {Status.UNDECIDED}
    reason = next(cell.reason for cell in cells if cell.requirement == "queries.last.p99")
    assert "on 1M of 864M events" in (reason or "")
    assert "a history of 28.8M events would decide" in (reason or "")


def test_a_smaller_history_than_a_query_looks_at_shows_no_growth() -> None:
    """Of 4M events, 1,000 a second, a window of two hours has all; of 40M it doesn't."""
    turns = [_turn(10, 100) for _ in range(2)]
    repetitions = [Repetition(n, [stored(r, f"{n}-{r.runs[0].fill_level}") for r in turn])
                   for n, turn in enumerate(turns, 1)]  # fmt: skip
    question = Question(Requirements.model_validate(LONG), 1000.0, {"last": 7200.0})
    verdict = judge(question, "T", [Measured("alpha", repetitions)], 2, 0)
    cell = _cell(verdict, "queries.last.p99")
    assert cell.status is Status.UNDECIDED
    assert "has less than the 2h that the query looks at" in (cell.reason or "")


def test_capacity_falls_as_inserts_become_slower() -> None:
    def turn(before: float, after: float) -> list[Result]:
        results = _turn(20, 20)
        for result, p50 in zip(results, (before, after), strict=True):
            result.runs[0].groups[0].service_ms = LatencyMs(p50=p50, p90=2, p99=3, max=4)
        search = capacity(at=2500.0, limits=["p99=250ms"])
        assert search.capacity is not None
        search.capacity.limits.append(parse_limit("query:last:p99=1s"))
        search.runs[-1].fill_level = 40_000_000
        search.options |= {"queries": {"last": 2.0}, "query_rate_per_s": 2.0}
        return [*results, search]

    flat = _cell(_judge(LONG, turn(1, 1), turn(1, 1)), "events_per_s")
    assert flat.status is Status.MET
    assert flat.headroom is not None
    slower = _cell(_judge(LONG, turn(1, 3), turn(1, 3)), "events_per_s")
    assert slower.headroom == pytest.approx(flat.headroom / 21.6**0.477, rel=0.02)
    alone = _cell(_judge(LONG, _turn(20, 20), _turn(20, 20)), "events_per_s")
    assert (alone.status, "kept up: a search" in (alone.reason or "")) == (Status.UNDECIDED, True)


def test_the_disk_is_told_between_the_fill_levels() -> None:
    needed = {**LONG, "disk": "100GB"}
    turns = [_turn(20, 20), _turn(20, 20)]
    cell = _cell(_judge(needed, *turns), "disk")
    assert cell.status is Status.MET
    assert cell.value == pytest.approx(86.4e9)
    assert cell.scale is not None
    assert (cell.scale.events, cell.scale.exponent and cell.scale.exponent.mean) == (
        40_000_500,
        1.0,
    )
    for low, high in turns:
        # Twice as much an event on ten times as many.
        for result, size in ((low, 50), (high, 100)):
            run = result.runs[0]
            total = size * (run.fill_level or 0)
            run.groups[0].storage = Storage(total_bytes=total, events=run.fill_level)
    assert _cell(_judge(needed, *turns), "disk").status is Status.MISSED


def _delete(kept: int, took_s: float) -> Result:
    deleting = _load(level=kept)
    for run in deleting.runs:
        deletion = Deletion(before_ms=0, began_s=1, ended_s=1 + took_s)
        run.retention = RetentionResult(period_s=1, step_s=1, deletions=[deletion])
    return deleting


def test_deletions_grow_with_what_is_stored() -> None:
    turns = [[_delete(10**6, 0.1), _delete(10**7, 1.0)] for _ in range(2)]
    notes = [note for note in _judge(LONG, *turns).notes if ", retention: " in note]
    assert (
        "; a deletion took 100 ms with 1M events stored, 1,000 ms with 10M → 30,000 ms with 300M of 864M."
    ) in notes[0]
    one = [
        note
        for note in _judge(LONG, *[turn[:1] for turn in turns]).notes
        if ", retention: " in note
    ]
    assert "ms with 1M of 864M events stored" in one[0]


def test_what_was_measured_in_memory_alone_is_told() -> None:
    turns = [_turn(20, 20, memory=10**10) for _ in range(2)]
    [note] = [note for note in _judge(LONG, *turns).notes if "in memory (" in note]
    # An event takes 100 bytes.
    assert "(10 GB), and 86.4 GB are stored at full retention: a history of 100M events" in note
    beyond = _judge(LONG, *[_turn(20, 20, memory=10**9) for _ in range(2)])
    assert not any("in memory (" in note for note in beyond.notes)


def test_a_search_alone_doesnt_say_what_holds_in_the_end() -> None:
    searches = [capacity(at=2500.0, limits=["p99=250ms"]) for _ in range(2)]
    needed = {**NEEDED, "retention": "10d"}
    for search in searches:
        search.runs[-1].fill_level = 10**8
    cell = _cell(_judge(needed, *([search] for search in searches)), "events_per_s")
    assert cell.status is Status.UNDECIDED
    assert "on 100M of 864M events, measured at one fill level" in (cell.reason or "")


def test_the_smaller_level_doesnt_stand_for_one_that_failed() -> None:
    needed = {**LONG, "history": {"time": "10m"}}
    small = _turn(20, 20)[:1]
    failed = _cell(_judge(needed, small, failed=["alpha fill 1 failed: it was away"]), "insert.p99")
    assert (failed.value, failed.reason) == (None, "alpha fill 1 failed: it was away")
    begun = _cell(_judge(needed, small, ended=False), "insert.p99")
    assert (begun.value, begun.reason) == (None, "not measured yet")
    assert _cell(_judge(needed, _turn(20, 20), ended=False), "insert.p99").value is not None
