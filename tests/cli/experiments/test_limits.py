"""Limits as they are written, and whether runs keep them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.experiments.limits import check_limits, judge_run, parse_limit
from simulator.contract import Client, GroupResult, LatencyMs, Load, Offered, QueryResult, Role
from simulator.errors import OptionError

from ...helpers import insert_run


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
    with pytest.raises(OptionError) as caught:
        parse_limit(text)
    assert said in str(caught.value)


def test_limits_of_queries_need_readers_who_ask_them() -> None:
    own, query = parse_limit("p99=100ms"), parse_limit("query:count-event:p99=1s")
    check_limits([own], None)
    for limits, asked, said in (
        ([own, parse_limit("p99=50ms")], None, "p99 is given more than once"),
        ([query], None, "say by --readers who asks it"),
        ([query], ["count-events"], "don't ask count-event; did you mean count-events?"),
    ):
        with pytest.raises(OptionError) as caught:
            check_limits(limits, asked)
        assert said in str(caught.value)


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
         ["saturated: 80% of what was due was done"]),
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
    assert verdict.reasons == ["query:last:p99 is not known of fewer than 100 requests"]
    verdict = judge_run(run, [parse_limit("query:last:p99=500ms")], 1)
    assert (verdict.holds, verdict.reasons) == (False, ["query:last:p90 900 ms"])


def test_a_limit_on_a_query_needs_a_rate_that_asks_it_often_enough() -> None:
    limit = parse_limit("query:last:p99=1s")
    readers = Load(role=Role.READ, rate_per_s=5.0, duration_s=30.0, warm_up_s=5.0)
    check_limits([limit], ["last"], readers)
    with pytest.raises(OptionError) as caught:
        check_limits([limit], ["last", "other"], readers)
    assert "asked 62 times" in str(caught.value)
    assert "longer --step-duration or a higher --query-rate" in str(caught.value)


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
    readers.client = Client.model_validate(
        {"cpu_s": 1, "cpu_share": 1, "generate_s": 0, "encode_s": 0, "ceiling_share": 0,
         "throttled_share": None, "bound": True}
    )  # fmt: skip
    verdict = judge_run(run, [], 1)
    assert verdict.reasons == ["readers saturated: 0% of what was due was done"]
    assert verdict.client_bound
