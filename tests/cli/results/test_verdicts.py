"""Verdicts: each rule by which a figure is doubted, on results as they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.caveats import Caveat, Kind, Place
from cli.results.model import Result
from cli.results.store import read_result
from cli.results.verdicts import find_caveats, is_stable, list_kinds, summarize_doubts
from simulator.contract import Execution, Lateness, LongWindows, Machine, Stall

from ..made import STORED, ask, capacity, client, inserts, open_loop, queries, steps

MANY = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def of_kind(result: Result, kind: Kind) -> list[Caveat]:
    return [caveat for caveat in find_caveats(result) if caveat.kind is kind]


def kinds(result: Result) -> list[Kind]:
    return [caveat.kind for caveat in find_caveats(result)]


def test_many_long_runs_have_no_caveats() -> None:
    assert find_caveats(inserts({1: MANY})) == []
    assert find_caveats(queries({"q": MANY})) == []


def test_invalid_runs() -> None:
    caveats = of_kind(read_result(STORED / "insert.json"), Kind.INVALID)
    lost = (
        "7 of 1000 events were not acknowledged; the database holds 993 events, 1000 were expected"
    )
    apart = "the workers overlapped only 50% (at least 90% is needed): use more --num-inserts"
    assert [(caveat.where, caveat.rate, caveat.text) for caveat in caveats] == [
        (Place(workers=1, run=3), 12000.0, lost),
        (Place(workers=8, run=1), 50000.0, apart),
        (Place(workers=8, run=2), None, "worker 3 was killed by SIGKILL in mid-run"),
        (Place(workers=12, run=1), None, "no word from worker 0 for 60 s"),
    ]


def test_an_invalid_step_is_named_by_its_level() -> None:
    (caveat,) = of_kind(read_result(STORED / "steps.json"), Kind.INVALID)
    assert caveat.where == Place(level=2000)
    assert str(caveat.where) == "level 2,000"


def test_client_bound_runs() -> None:
    (caveat,) = of_kind(read_result(STORED / "insert.json"), Kind.CLIENT_BOUND)
    assert caveat.where == Place(workers=4, run=1)
    assert caveat.text == (
        "a worker's CPU was busy 90% of the time: this is your client's speed, not your database's"
    )


@pytest.mark.parametrize(("others", "steal"), [(0.8, 0.0), (None, 0.1)])
def test_a_client_that_is_bound_as_others_are_busy(others: float | None, steal: float) -> None:
    result = inserts({1: MANY})
    group_run = result.writers[0]
    group_run.group.client = client(0.9, bound=True)
    group_run.run.machines = [Machine(node="n", others_share=others, steal_share=steal)]
    (caveat,) = of_kind(result, Kind.CLIENT_BOUND)
    assert "your client's speed on a busy machine, not your" in caveat.text


def test_an_invalid_run_is_not_called_client_bound() -> None:
    result = inserts({1: MANY})
    group = result.writers[0].group
    group.client, group.invalid_reasons = client(0.9, bound=True), ["lost"]
    assert of_kind(result, Kind.CLIENT_BOUND) == []


@pytest.mark.parametrize(
    ("share", "in_flight", "limit"),
    [(0.149, 1, None), (0.15, 1, "1.18"), (0.4, 16, None), (0.4, None, None)],
)
def test_the_clients_part_of_a_requests_time(
    share: float, in_flight: int | None, limit: str | None
) -> None:
    """With several in flight the database works meanwhile; of an older result it isn't known."""
    result = inserts({1: MANY})
    part = client(share)
    part.in_flight = in_flight
    result.writers[3].group.client = part
    text = (
        "15% of each request's time is the client's own CPU; with an ideal client the rate could be up"
        f" to {limit} times as high"
    )
    texts = [caveat.text for caveat in of_kind(result, Kind.CLIENTS_PART)]
    assert texts == ([text] if limit else [])


def test_a_client_bound_run_needs_no_word_of_the_clients_part() -> None:
    result = inserts({1: MANY})
    part = client(0.6, bound=True)
    part.in_flight = 1
    result.writers[0].group.client = part
    assert of_kind(result, Kind.CLIENTS_PART) == []


def test_a_client_that_stood_still_for_a_moment_is_mentioned() -> None:
    """Once for each number of workers: the run in which it was longest."""
    result = inserts({1: MANY})
    for group_run, length_s in zip(result.writers, (0.3, 0.4), strict=False):
        group_run.group.window_s, group_run.group.client = 60.0, client(0.1)
        group_run.group.stalls = [Stall(worker=0, begins_s=1.0, length_s=length_s)]
    texts = [caveat.text for caveat in of_kind(result, Kind.CLIENTS_PART)]
    text = (
        "the load generator stalled for 0.4 s of 60 s (worker 0: stopped, or left without CPU), which"
        " may have delayed the slowest requests"
    )
    assert texts == [text]
    for group_run in result.writers:
        group_run.group.stalls = [Stall(worker=None, begins_s=1.0, length_s=0.5)]
    [collectors] = of_kind(result, Kind.CLIENTS_PART)
    assert (
        "(the collector: stopped, or left without CPU), which delayed no request" in collectors.text
    )


def asked(share: float, **changes: Any) -> Result:
    """A query by number, of one reader with this share of a CPU that asked for ten seconds."""
    result = queries({"a": MANY}, window_s=10.0, rate_per_s=5.0)
    [group_run] = result.readers
    group_run.group.client = client(share).model_copy(update={"in_flight": 1} | changes)
    group_run.group.queries[0].rows = 2
    return result


_CPU = "{} of each request's time is the client's own CPU"
_PAUSE = "between an answer and the next query the database waited {} of the time"


@pytest.mark.parametrize(
    ("changes", "said", "limit"),
    [
        ({"pause_share": 0.149}, None, None),
        ({"pause_share": 0.15}, _PAUSE.format("15%"), "1.18"),
        ({"share": 0.2, "pause_share": 0.1}, _CPU.format("20%"), "1.25"),
        (
            {"share": 0.4, "pause_share": 0.2},
            f"{_PAUSE.format('20%')}, and {_CPU.format('40%')}",
            "1.67",
        ),
        ({"share": 0.4, "pause_share": 0.1, "in_flight": 8}, None, None),
        (
            {"pause_share": 0.2, "in_flight": 8},
            "in-flight capacity was idle between an answer and the next query 20% of the time",
            "1.25",
        ),
    ],
)
def test_the_clients_part_of_asking(
    changes: dict[str, Any], said: str | None, limit: str | None
) -> None:
    result = asked(**{"share": 0.1, **changes})
    rest = f"; with an ideal client the rate could be up to {limit} times as high"
    caveats = of_kind(result, Kind.CLIENTS_PART)
    assert [caveat.text for caveat in caveats] == ([f"{said}{rest}"] if said else [])
    assert all(caveat.where == Place(workers=1, group="reader") for caveat in caveats)


def test_the_clients_part_in_a_moment_of_asking_or_in_an_older_result_is_not_known() -> None:
    result = asked(0.4, pause_share=0.4)
    assert Kind.CLIENTS_PART in kinds(result)
    [group_run] = result.readers
    group_run.group.window_s = 0.9
    assert Kind.CLIENTS_PART not in kinds(result)
    group_run.group.window_s, group_run.group.queries[0].rows = 10.0, None
    assert Kind.CLIENTS_PART not in kinds(result)


@pytest.mark.parametrize(
    ("pause_share", "whose"),
    [(0.5, "the queries per second are your client's speed"), (0.1, "this is your client's speed")],
)
def test_queries_by_number_are_called_client_bound(pause_share: float, whose: str) -> None:
    """A pause is in no query's time; CPU may be."""
    result = asked(0.4, pause_share=pause_share, bound=True, bound_reason="much to do")
    (caveat,) = of_kind(result, Kind.CLIENT_BOUND)
    assert caveat.text == f"much to do: {whose}, not your database's"
    assert list_kinds(result) == ["client-bound"]
    assert summarize_doubts(result) == [caveat.text]


def test_a_saturated_run_is_a_true_result_of_which_it_is_said() -> None:
    result = open_loop({2: [800.0, 810.0]}, saturated=True, unsent=1234)
    assert result.valid
    first, second = of_kind(result, Kind.SATURATED)
    assert (first.where, second.where) == (Place(workers=2, run=1), Place(workers=2, run=2))
    assert first.text == (
        "did not keep up with 1,000 events/s: 20,000 events were due in the window, but only"
        " 16,000 were done; 1,234 events that were never sent count in the response times with the"
        " time they waited"
    )
    assert first.rate is None
    assert summarize_doubts(result) == ["2 of 2 runs are saturated"]
    assert Kind.SATURATED not in kinds(open_loop({2: [1000.0, 1001.0]}))


def test_a_saturated_run_of_which_all_was_sent_says_nothing_of_what_was_not() -> None:
    (caveat,) = of_kind(open_loop({1: [800.0]}, saturated=True), Kind.SATURATED)
    assert caveat.text.endswith("but only 16,000 were done")


@pytest.mark.parametrize("saturated", [False, True])
def test_in_an_open_loop_a_client_has_a_part_only_if_it_never_waits(saturated: bool) -> None:
    result = open_loop({1: [800.0]}, saturated=saturated)
    for group_run in result.writers:
        group_run.group.client = client(0.2).model_copy(update={"in_flight": 1})
    assert (Kind.CLIENTS_PART in kinds(result)) is saturated


def test_a_run_by_the_clock_is_short_by_its_duration() -> None:
    result = open_loop({1: [800.0]})
    for group_run in result.writers:
        group_run.group.window_s = 4.0
    (caveat,) = of_kind(result, Kind.SHORT)
    assert caveat.text == (
        "start-up and shutdown dominate a run of 4.0 s: give --duration 11s or longer"
    )


def test_a_longer_step_of_a_search_has_a_longer_warm_up() -> None:
    result = capacity()
    for group_run in result.writers:
        group_run.group.window_s = 4.0
    (caveat,) = of_kind(result, Kind.SHORT)
    # Of which a sixth is left out: ten seconds stay.
    assert "give --step-duration 12s or longer" in caveat.text


def busy(node: str = "vm", **shares: float) -> list[Machine]:
    return [Machine(node="idle", others_share=0.01, steal_share=0.0), Machine(node=node, **shares)]


@pytest.mark.parametrize(("share", "named"), [(0.099, False), (0.1, True)])
def test_a_machine_that_others_used(share: float, named: bool) -> None:
    result = inserts({1: MANY, 2: MANY})
    result.runs[1].machines = busy(others_share=share)
    caveats = of_kind(result, Kind.BUSY)
    text = (
        "others took 10% of the CPU of vm in 1 of 6 runs: stop them, or measure on an idle machine"
    )
    assert [(caveat.where, caveat.text) for caveat in caveats] == [(Place(workers=1), text)] * named


def test_the_busiest_of_several_runs_is_told_of() -> None:
    result = inserts({1: MANY})
    for number, share in ((0, 0.2), (2, 0.345), (3, 0.05)):
        result.runs[number].machines = busy(f"node-{number}", others_share=share)
    machine = result.runs[2].machines[1]
    machine.others = {"java": 0.3, "chrome": 0.04}
    (caveat,) = of_kind(result, Kind.BUSY)
    assert caveat.text.startswith(
        "others took up to 34% of the CPU of node-2 in 2 of 6 runs (java 30%, chrome 4%): "
    )


def test_a_machine_of_which_the_hypervisor_took() -> None:
    result = steps({0: 1.0, 7: 2.0})
    result.runs[1].machines = busy(steal_share=0.12, others_share=0.5)
    caveats = of_kind(result, Kind.BUSY)
    assert [caveat.where for caveat in caveats] == [Place(level=7)] * 2
    assert caveats[1].text == (
        "the hypervisor gave 12% of the CPU of vm to other machines (steal): measure on dedicated"
        " CPUs"
    )


def test_a_machine_that_was_busy_while_queries_were_asked() -> None:
    result = queries({"q": MANY})
    result.runs[0].machines = busy(others_share=0.25)
    (caveat,) = of_kind(result, Kind.BUSY)
    assert (caveat.where, caveat.text[:40]) == (None, "others took 25% of the CPU of vm: stop t")


def test_groups_that_ran_alone_are_told_apart() -> None:
    result = inserts({1: MANY})
    alone = result.runs[0].model_copy(update={"machines": busy(others_share=0.5)})
    result.baseline = [alone, result.runs[1]]
    (caveat,) = of_kind(result, Kind.BUSY)
    assert caveat.where is not None
    assert str(caveat.where) == "1 writer alone"
    assert caveat.text.startswith("others took 50% of the CPU of vm in 1 of 2 runs")


def test_retries() -> None:
    (caveat,) = of_kind(read_result(STORED / "insert.json"), Kind.RETRIES)
    assert (caveat.where, caveat.text) == (Place(workers=1, run=2), "2 (2 deadlock_detected)")


@pytest.mark.parametrize(("overlap", "apart"), [(0.79, True), (0.8, False), (None, False)])
def test_readers_that_did_not_ask_at_once(overlap: float | None, apart: bool) -> None:
    result = queries({"q": MANY}, overlap=overlap)
    texts = [caveat.text for caveat in of_kind(result, Kind.APART)]
    assert [text.startswith("all workers were active together for only 79%") for text in texts] == [
        True
    ] * apart


@pytest.mark.parametrize(("window_s", "short"), [(9.9, True), (9.96, False), (10.0, False)])
def test_short_runs(window_s: float, short: bool) -> None:
    result = inserts({1: MANY})
    result.writers[2].group.window_s = window_s
    texts = [caveat.text for caveat in of_kind(result, Kind.SHORT)]
    assert [
        text.startswith("start-up and shutdown dominate a run of 9.9 s: ") for text in texts
    ] == [True] * short


def test_runs_that_differ() -> None:
    (caveat,) = of_kind(read_result(STORED / "insert.json"), Kind.UNSTABLE)
    assert caveat.where == Place(workers=4)
    assert caveat.text.startswith("the runs differ by 47%")


def test_runs_that_differ_too_much_to_show_anything() -> None:
    caveats = of_kind(read_result(STORED / "insert.json"), Kind.FEW_RUNS)
    assert caveats[0].text.startswith("with 2 runs this noisy, no difference is detectable")


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (1, "a single valid run with 1 worker says nothing about its spread"),
        (2, "with 2 runs this noisy"),
        (5, "with 5 runs this noisy"),
        (6, None),
    ],
)
def test_few_runs(runs: int, text: str | None) -> None:
    result = inserts({1: [100.0 + n / 10 for n in range(runs)]})
    texts = [caveat.text for caveat in of_kind(result, Kind.FEW_RUNS)]
    assert [line.startswith(text or "?") for line in texts] == [True] * (text is not None)


def test_single_runs_are_named_by_their_workers() -> None:
    (caveat,) = of_kind(inserts({1: MANY, 2: [5.0], 1000: [9.0]}), Kind.FEW_RUNS)
    assert (
        caveat.text == "a single valid run with 2 and 1,000 workers says nothing about its spread"
    )


def test_steps_are_single_runs() -> None:
    assert kinds(steps({0: 1.0, 5: 2.0})) == [Kind.FEW_RUNS]


def test_levels_whose_workers_ended_apart_are_valid_and_said_to_be_slow() -> None:
    result = steps({0: 1.0, 5: 2.0})
    result.runs[1].groups[0].overlap = 0.64
    assert kinds(result) == [Kind.APART, Kind.FEW_RUNS]


def test_what_was_not_measured_and_what_is_missing_come_first() -> None:
    result = inserts({1: MANY}, source="read off a picture", complete=False)
    assert find_caveats(result) == [
        Caveat(Kind.NOT_MEASURED, "by this tool: read off a picture"),
        Caveat(
            Kind.INCOMPLETE, "not all runs were made: the command was ended, or is still running"
        ),
    ]


def test_the_order_is_that_of_gravity() -> None:
    result = inserts({1: [100.0, 200.0], 2: MANY, 3: [5.0]}, complete=False)
    first, _, bound, *_, last = (group_run.group for group_run in result.writers)
    first.invalid_reasons, bound.client = ["lost"], client(0.9, bound=True)
    last.window_s, last.retries = 0.5, 1
    assert kinds(result) == [
        Kind.INCOMPLETE, Kind.INVALID, Kind.CLIENT_BOUND, Kind.RETRIES, Kind.SHORT, Kind.FEW_RUNS,
    ]  # fmt: skip


# --- queries --------------------------------------------------------------------------------------


def test_failed_queries() -> None:
    caveats = of_kind(read_result(STORED / "query.json"), Kind.INVALID)
    assert [caveat.text for caveat in caveats] == [
        "query newest-per-device failed: temporary file size exceeds temp_file_limit",
        "query temperature-stats failed: canceled",
    ]


def test_query_times_that_differ_after_the_first() -> None:
    """The first execution is slower as a rule, and no sign of unrest."""
    (caveat,) = of_kind(read_result(STORED / "query.json"), Kind.UNSTABLE)
    assert caveat.where == Place(query="count-events")
    assert caveat.text == "the runs differ by 71% (CV; 10% is high)"
    assert of_kind(queries({"q": MANY}, cold=9999.0), Kind.UNSTABLE) == []


@pytest.mark.parametrize(("further", "text"), [(1, "once"), (3, "3 times")])
def test_queries_asked_seldom(further: int, text: str) -> None:
    (caveat,) = of_kind(queries({"q": MANY[:further]}), Kind.FEW_RUNS)
    assert caveat.text.startswith(f"after its first execution a query ran {text}; six or more")


def test_queries_asked_once() -> None:
    (caveat,) = find_caveats(queries({"q": [1.0]}, cold=None))
    assert caveat.kind is Kind.FEW_RUNS
    assert "its times are those of first executions" in caveat.text


def test_many_executions_of_few_workers_are_few_samples() -> None:
    each = [
        Execution(run=run, worker=worker, duration_s=1.0 + worker / 100, rows=1)
        for run in range(1, 50)
        for worker in range(2)
    ]
    (caveat,) = find_caveats(
        queries({}, queries=[ask("q", each)], options={"workers": 2, "runs": 49, "module": {}})
    )
    assert caveat.kind is Kind.FEW_RUNS
    assert caveat.text.startswith("2 workers are 2 samples, however many executions each has")


# --- what follows ---------------------------------------------------------------------------------


def test_stability() -> None:
    assert is_stable(inserts({1: MANY})) is True
    assert is_stable(inserts({1: [100.0, 200.0], 2: MANY})) is False
    assert is_stable(inserts({1: [100.0]})) is None
    assert is_stable(queries({"a": [1.0, 2.0]})) is False
    assert is_stable(queries({"a": MANY})) is True
    assert is_stable(queries({"a": [1.0]})) is None


def test_what_makes_a_result_unfit_for_a_comparison() -> None:
    result = inserts({1: [*MANY, 7.0]}, complete=False)
    result.writers[0].group.invalid_reasons = ["lost"]
    result.writers[1].group.client = client(0.9, bound=True)
    assert summarize_doubts(result) == [
        "not all runs were made: the command was ended, or is still running",
        "1 of 7 runs is invalid and left out",
        "1 of 7 runs shows the client's speed, not the database's",
    ]
    assert summarize_doubts(queries({"q": MANY}, invalid_reasons=["no answer"])) == ["no answer"]
    assert summarize_doubts(inserts({1: MANY})) == []


def test_what_was_asked_for_and_not_given_is_said() -> None:
    long = LongWindows(stored_ms=80_000, queries={"week": 604_800_000, "day": 86_400_000})
    result = queries({"q": MANY}, long_windows=long)
    assert [caveat.text for caveat in of_kind(result, Kind.NOT_AS_ASKED)] == [
        "the stored events span 1.33 min, less than the windows of week (7 d), day (1 d): store more"
    ]
    result = inserts({1: MANY})
    result.writers[2].group.lateness = Lateness(asked=0.02, came=0.0038)
    (caveat,) = of_kind(result, Kind.NOT_AS_ASKED)
    assert caveat.text.startswith(
        "run too short for its delays: 2% of the events should have come late, 0.38% did"
    )
