"""Limits as they are written, and whether runs keep them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli.plan.requests import InsertRequest
from cli.plan.values import parse_limit
from cli.results.conditions import compare_conditions
from cli.results.export import list_rows
from cli.run.experiments.experiment import choose_status
from cli.run.experiments.measuring import InsertExperiment
from cli.run.experiments.search import (
    check_limits,
    conclude,
    is_client_bound,
    judge_run,
    spread_limits,
)
from cli.show.notes import describe_limits, tabulate_limits
from cli.show.words import give_answer, write_headline
from cli.system.errors import ConfigError
from simulator.contract import (
    Client,
    EarlyEnd,
    GroupResult,
    LatencyMs,
    Load,
    Offered,
    QueryResult,
    Role,
    RunResult,
    RunSettings,
)
from simulator.errors import OptionError

from ....helpers import insert_run
from ...made import inserts, stored
from .running import FakeExecutor, make_runs, open_blackhole


def offered(**changes: Any) -> Offered:
    values = {"rate_per_s": 500, "due": 10_000, "achieved": 10_000, "backlog_max": 9,
              "backlog_growth": 3, "saturated": False}  # fmt: skip
    return Offered.model_validate(values | changes)


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("p99=100ms", 100.0, "p99=100ms"),
        ("p50=2s", 2000.0, "p50=2s"),
        ("p99_9=0.5ms", 0.5, "p99_9=0.5ms"),
        ("service_p99=250us", 0.25, "service_p99=0.25ms"),
        ("error_share=0.1%", 0.001, "error_share=0.1%"),
        ("error_share=0", 0.0, "error_share=0%"),
        ("query:count-events:p99=1.5s", 1500.0, "query:count-events:p99=1.5s"),
    ],
)
def test_limits_are_read_and_written(text: str, value: float, shown: str) -> None:
    limit = parse_limit(text)
    assert limit.at_most == pytest.approx(value)
    assert str(limit) == shown
    assert parse_limit(shown) == limit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p98=100ms", "there is no 'p98'; did you mean p99? (there are: p50, p90, p99, p99_9,"),
        ("p99", "write a limit as in p99=100ms"),
        ("p99=100", "write a time above 0 with its unit, as in p99=100ms"),
        ("p99=0ms", "write a time above 0"),
        ("p99=fast", "write a time above 0"),
        ("error_share=2ms", "write a share as in error_share=0.1%"),
        ("error_share=150%", "write a share"),
        ("query:p99=5ms", "write a limit as in"),
        ("error_shar=1%", "did you mean error_share?"),
    ],
)
def test_wrong_ones_say_how_to_write_them(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_limit(text)


def test_limits_of_queries_need_readers_who_ask_them() -> None:
    own, query = parse_limit("p99=100ms"), parse_limit("query:count-event:p99=1s")
    check_limits([own], None)
    for limits, queries, message in (
        ([own, parse_limit("p99=50ms")], None, "p99 is given more than once"),
        ([query], None, "give --readers to run it"),
        ([query], ["count-events"], "don't run count-event; did you mean count-events?"),
    ):
        with pytest.raises(OptionError) as caught:
            check_limits(limits, queries)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "changes", "reasons"),
    [
        ("p99=3ms", {}, []),
        ("p99=2.9ms", {}, ["p99 3 ms"]),
        ("p99_9=3.9ms", {}, ["p99_9 4 ms"]),
        ("service_p99=1ms", {}, ["service_p99 1.25 ms"]),
        # 1,000 events in requests of 10, and 10 that failed: 10 of 110.
        ("error_share=10%", {"errors": {"connection_lost": 10}}, []),
        ("error_share=9%", {"errors": {"connection_lost": 10}}, ["error_share 9.09%"]),
        ("p99=3ms", {"offered": offered(saturated=True, achieved=8000)},
         ["saturated: achieved 80% of what was due"]),
        ("p99=3ms", {"offered": offered(saturated=True)}, ["saturated: the backlog grew by 3"]),
        ("p99=3ms", {"invalid_reasons": ["lost"], "latency_ms": None},
         ["invalid: lost"]),
        ("p99=3ms", {"latency_ms": None}, ["p99 is not known"]),
        ("query:slow:p99=1s", {}, ["query:slow:p99 is not known"]),
    ],
)  # fmt: skip
def test_a_step_holds_if_it_is_valid_not_saturated_and_within_limits(
    limit: str, changes: dict[str, Any], reasons: list[str]
) -> None:
    service = LatencyMs(p50=0.5, p90=0.75, p99=1.25, p99_9=2.0, max=3.0)
    run = insert_run(**({"offered": offered(), "service_ms": service} | changes))
    verdict = judge_run(run, [parse_limit(limit)], per_request=10)
    assert verdict.reasons == reasons
    assert verdict.holds is (not reasons)


@pytest.mark.parametrize(
    ("limit", "due", "changes", "holds", "reasons"),
    [
        # Three requests decide nothing, whatever they look like.
        ("p50=1s", 30, {}, None, ["too few requests: 3, and 100 are needed"]),
        ("p50=1s", 30, {"saturated": True}, None, ["too few requests: 3, and 100 are needed"]),
        ("p99=1s", 990, {}, None, ["too few requests: 99, and 100 are needed"]),
        ("p99=1s", 1000, {}, True, []),
        ("p99_9=1s", 1000, {}, None, ["too few requests: 100, and 1,000 are needed"]),
    ],
)
def test_no_verdict_rests_on_too_few_requests(
    limit: str, due: int, changes: dict[str, Any], holds: bool | None, reasons: list[str]
) -> None:
    run = insert_run(offered=offered(due=due, achieved=due, **changes))
    verdict = judge_run(run, [parse_limit(limit)], per_request=10)
    assert (verdict.holds, verdict.reasons) == (holds, reasons)


def test_a_query_that_was_asked_too_rarely_has_no_p99() -> None:
    """Unless a lower percentile breaks the limit already."""
    few = LatencyMs(p50=10, p90=900, max=950)
    query = QueryResult(query="last", executions=40, latency_ms=few)
    readers = GroupResult(role=Role.READ, workers=1, queries=[query])
    run = insert_run(offered=offered())
    run.groups.append(readers)
    verdict = judge_run(run, [parse_limit("query:last:p99=1s")], 1)
    assert verdict.holds is None
    assert verdict.reasons == ["query:last:p99 needs at least 100 requests"]
    verdict = judge_run(run, [parse_limit("query:last:p99=500ms")], 1)
    assert (verdict.holds, verdict.reasons) == (False, ["query:last:p90 900 ms"])


def test_a_limit_on_a_query_needs_a_rate_that_asks_it_often_enough() -> None:
    limit = parse_limit("query:last:p99=1s")
    readers = Load(role=Role.READ, rate_per_s=5.0, duration_s=30.0, warm_up_s=5.0)
    check_limits([limit], ["last"], readers)
    with pytest.raises(OptionError) as caught:
        check_limits([limit], ["last", "other"], readers)
    assert "runs 62 times" in str(caught.value)
    assert "longer --step-duration or a higher --query-rate" in str(caught.value)


BOUND = Client.model_validate(
    {"cpu_s": 1, "cpu_share": 1, "generate_s": 0, "encode_s": 0, "ceiling_share": 0,
     "throttled_share": None, "bound": True}
)  # fmt: skip


def test_readers_have_limits_too() -> None:
    query = QueryResult(
        query="last", executions=99, errors=1,
        latency_ms=LatencyMs(p50=10, p90=20, p99=30, p99_9=40, max=50),
    )  # fmt: skip
    readers = GroupResult(role=Role.READ, workers=1, queries=[query])
    limits = [parse_limit(f"query:last:{rest}") for rest in ("p99=25ms", "error_share=0.5%")]
    run = insert_run(offered=offered())
    run.groups.append(readers)
    verdict = judge_run(run, limits, 1)
    assert verdict.reasons == ["query:last:p99 30 ms", "query:last:error_share 1%"]
    assert verdict.figures == {"query:last:p99": 30.0, "query:last:error_share": 0.01}
    readers.offered = offered(saturated=True, achieved=10)
    readers.client = BOUND
    verdict = judge_run(run, [], 1)
    assert verdict.reasons == ["readers saturated: achieved 0% of what was due"]
    assert is_client_bound(run, verdict.limits)


@pytest.mark.parametrize(
    ("limit", "bound"), [("query:last:p99=25ms", False), ("p99=2ms", True), ("p99=1s", True)]
)
def test_a_writer_that_is_late_is_no_reason_for_slow_answers(limit: str, bound: bool) -> None:
    run = insert_run(offered=offered(), client=BOUND)
    slow = LatencyMs(p50=10, p90=20, p99=30, p99_9=40, max=50)
    query = QueryResult(query="last", executions=200, latency_ms=slow)
    run.groups.append(GroupResult(role=Role.READ, workers=1, queries=[query]))
    assert is_client_bound(run, judge_run(run, [parse_limit(limit)], 1).limits) is bound


# --- what becomes of the limits of a run, and of a command ------------------------------------------


def reader(**changes: Any) -> RunResult:
    """A run of readers alone, who asked `last` a hundred times."""
    latency = LatencyMs(p50=10, p90=20, p99=30, max=50)
    query = QueryResult(query="last", executions=100, latency_ms=latency)
    values = {"role": Role.READ, "workers": 2, "queries": [query]}
    return RunResult(groups=[GroupResult.model_validate(values | changes)])


@pytest.mark.parametrize(
    ("limits", "run", "outcome", "each"),
    [
        (["p99=3ms", "error_share=0"], insert_run(), "kept", ["kept", "kept"]),
        (["p99=2ms", "error_share=0"], insert_run(), "missed", ["missed", "kept"]),
        # A tenth of the events came in each request: 99 of them.
        (["p99=3ms"], insert_run(count=990), "undecided", ["undecided"]),
        (["p99=2ms"], insert_run(invalid_reasons=["lost"]), "undecided", ["undecided"]),
        # In a closed loop a request is due when it is sent.
        (["service_p99=2ms"], insert_run(), "missed", ["missed"]),
        (["p50=3ms"], insert_run(offered=offered(saturated=True)), "missed", ["kept"]),
        (["query:last:p99=30ms"], reader(), "kept", ["kept"]),
        (["query:last:p99=29ms"], reader(), "missed", ["missed"]),
        (["query:last:p99_9=60ms", "query:last:p50=1ms"], reader(), "missed",
         ["undecided", "missed"]),
        (["query:last:p99_9=60ms"], reader(), "undecided", ["undecided"]),
    ],
)  # fmt: skip
def test_what_becomes_of_the_limits_of_a_run(
    limits: list[str], run: RunResult, outcome: str, each: list[str]
) -> None:
    verdict = conclude(run, [parse_limit(text) for text in limits], 10)
    assert (verdict.outcome, [limit.outcome for limit in verdict.limits]) == (outcome, each)
    assert bool(verdict.reasons) is (outcome != "kept")


def test_a_run_that_was_ended_early_has_missed_the_limit_whatever_its_figure_is() -> None:
    """It made too few requests for a p99; its other limits are judged by what was measured."""
    end = EarlyEnd(limit="p99=100ms", at_s=3.0, reason="90 of at most 200 requests took longer")
    text = "ended after 3.0 s: p99=100ms can no longer be kept (90 of at most 200 requests took longer)"
    run = insert_run(aborted=end, count=500, invalid_reasons=[text])
    limits = [parse_limit("p99=100ms"), parse_limit("error_share=0")]
    verdict = conclude(run, limits, 1)
    assert verdict.outcome == "missed"
    assert [limit.outcome for limit in verdict.limits] == ["missed", "kept"]
    assert verdict.reasons == [text]
    unknown = conclude(run, [limits[0], parse_limit("query:last:p99=1s")], 1).limits[1]
    assert unknown.outcome == "undecided"
    assert unknown.reason == "the run ended too early to tell"
    other = insert_run(aborted=end, invalid_reasons=[text, "the database holds 3 events"])
    assert conclude(other, limits, 1).outcome == "undecided"


@pytest.mark.parametrize(
    ("texts", "runs", "status"),
    [
        ([], [insert_run()], 0),
        ([], [insert_run(invalid_reasons=["lost"])], 1),
        (["p99=3ms"], [insert_run(), insert_run()], 0),
        (["p99=3ms"], [insert_run(), insert_run(count=5)], 3),
        (["p99=2ms"], [insert_run()], 3),
        # What isn't valid decides nothing.
        (["p99=2ms"], [insert_run(), insert_run(invalid_reasons=["lost"])], 1),
    ],
)
def test_the_exit_status_is_0_only_if_all_limits_are_kept(
    texts: list[str], runs: list[RunResult], status: int
) -> None:
    limits = [parse_limit(text) for text in texts]
    verdicts = [conclude(run, limits, 1) for run in runs] if limits else []
    result = inserts({1: [1.0]}).model_copy(update={"runs": runs, "verdicts": verdicts})
    assert choose_status(result) == status


def test_a_limit_of_a_query_command_is_about_each_query_that_has_none_of_its_own() -> None:
    limits = [parse_limit("p99=2s"), parse_limit("query:slow:p99=9s"), parse_limit("p50=1s")]
    spread = [str(limit) for limit in spread_limits(limits, ["quick", "slow"])]
    assert spread == [
        "query:slow:p99=9s", "query:quick:p99=2s", "query:quick:p50=1s", "query:slow:p50=1s",
    ]  # fmt: skip


def test_what_became_of_limits_is_told_in_a_line_and_a_table() -> None:
    limits = [parse_limit("p99=2ms"), parse_limit("error_share=1%")]
    runs = [insert_run(run=1), insert_run(run=2, latency_ms=LatencyMs(p50=1, p90=1, p99=2, max=2))]
    verdicts = [conclude(run, limits, 10) for run in runs]
    result = inserts({1: [1.0]}).model_copy(update={"runs": runs, "verdicts": verdicts})
    assert describe_limits(result) == (
        "Limits missed: p99=2ms missed in 1 of 2 runs (3 ms); error_share=1% kept (up to 0%)."
    )
    assert write_headline(result).endswith(", limits missed")
    assert give_answer(result).endswith("kept (up to 0%).")
    assert [list(map(str, row)) for row in tabulate_limits(result).rows] == [
        ["4", "1", "0", "p99=2ms", "3 ms", "missed", "-"],
        ["4", "1", "0", "error_share=1%", "0%", "kept", "-"],
        ["4", "2", "0", "p99=2ms", "2 ms", "kept", "-"],
        ["4", "2", "0", "error_share=1%", "0%", "kept", "-"],
    ]
    held = [(row["holds"], row["limits"]) for row in list_rows(stored(result))]
    assert held == [
        (False, "p99=2ms missed; error_share=1% kept"),
        (True, "p99=2ms kept; error_share=1% kept"),
    ]


def test_a_saturated_run_keeps_no_limit_and_says_so() -> None:
    run = insert_run(offered=offered(saturated=True, achieved=8000))
    verdict = conclude(run, [parse_limit("p50=2ms")], 10)
    result = inserts({1: [1.0]}).model_copy(update={"runs": [run], "verdicts": [verdict]})
    assert describe_limits(result) == (
        "Limits missed: p50=2ms kept (1 ms); in 1 of 1 run: saturated: achieved 80% of what was due."
    )


def test_limits_judge_what_was_measured_and_are_no_condition_of_it() -> None:
    plain = inserts({1: [1.0]})
    judged = inserts({1: [1.0]}, options={"limits": ["p99=1s"]})
    assert compare_conditions([plain, judged]).differences == []


# --- what a command does with them ------------------------------------------------------------------


def ask(place: Path, kind: Any, request: Any) -> Any:
    experiment = kind(request, open_blackhole(place))
    experiment.check()
    return experiment


def test_a_command_refuses_limits_that_it_can_not_be_about(tmp_path: Path) -> None:
    query = parse_limit("query:last:p99=1s")
    sweep = InsertRequest(target="x", workers=(1,))
    for changes, message in (
        ({"limits": (query,)}, "is for a query, and insert runs none: use mixed"),
        ({"abort_on_limit": True}, "give a --limit, as in p99=100ms"),
        ({"limits": (parse_limit("p99=1s"),) * 2}, "given more than once"),
    ):
        with pytest.raises(ConfigError) as caught:
            ask(tmp_path, InsertExperiment, sweep.model_copy(update=changes))
        assert message in str(caught.value)


class _Fast(FakeExecutor):
    def measure(self, settings: RunSettings) -> RunResult:
        return insert_run()


def test_limits_are_kept_with_the_result_and_end_runs_only_if_asked_to(tmp_path: Path) -> None:
    limits = [parse_limit("p99=2ms")]
    for aborts in (False, True):
        sweep = InsertRequest(
            target="x", workers=(1,), runs=2, limits=tuple(limits), abort_on_limit=aborts
        )
        database = _Fast()
        experiment = ask(tmp_path, InsertExperiment, sweep)
        result = make_runs(experiment, database).make_result(complete=True)
        assert [settings.abort_limits for settings in database.asked] == [
            limits if aborts else []
        ] * 2
        assert [verdict.outcome for verdict in result.verdicts] == ["missed", "missed"]
        assert result.options["limits"] == ["p99=2ms"]
        assert result.options.get("abort_on_limit", False) is aborts
        assert choose_status(result) == 3
