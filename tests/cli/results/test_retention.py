"""What is said of deleting by age."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.model import GroupRun
from cli.results.retention import describe_cost, find_loss
from simulator.contract import DeletionCost, GroupResult, IntervalFigures, Role, RunResult


def _stretch(seconds: int, rate_per_s: float = 100.0, p99_ms: float = 5.0) -> IntervalFigures:
    if not seconds:
        return IntervalFigures(seconds=0)
    return IntervalFigures(seconds=seconds, rate_per_s=rate_per_s, p99_ms=p99_ms)


def _run(during: IntervalFigures, **parts: Any) -> GroupRun:
    cost = DeletionCost(
        during=during,
        before=parts.get("before", _stretch(5, 120.0)),
        between=parts.get("between", _stretch(3)),
    )
    group = GroupResult(role=Role.WRITE, workers=1, deletion_cost=cost)
    return GroupRun(RunResult(groups=[group]), group)


def test_what_is_lost_is_told_beside_the_seconds_between() -> None:
    run = _run(_stretch(4, 90.0, 12.5))
    loss = find_loss(run.group.deletion_cost)
    assert loss is not None
    assert loss.share == pytest.approx(0.1)
    assert (loss.during.p99_ms, loss.beside.p99_ms) == (12.5, 5)
    assert describe_cost([run], "inserts") == (
        "inserts lost 10% in the 4 s in which one ran (90/s, p99 12.5 ms, beside 100/s, p99 5 ms)"
    )


def test_without_seconds_between_those_before_count() -> None:
    loss = find_loss(_run(_stretch(4, 90.0), between=_stretch(0)).group.deletion_cost)
    assert loss is not None
    assert loss.share == pytest.approx(0.25)


def test_too_few_seconds_between_say_nothing() -> None:
    loss = find_loss(_run(_stretch(4, 90.0), between=_stretch(2, 500.0)).group.deletion_cost)
    assert loss is not None
    assert loss.beside.rate_per_s == 120
    loss = find_loss(
        _run(_stretch(4, 90.0), between=_stretch(2), before=_stretch(0)).group.deletion_cost
    )
    assert loss is not None
    assert loss.beside.rate_per_s == 100


def test_without_any_to_hold_against_it_is_not_told() -> None:
    nothing = _run(_stretch(4), before=_stretch(0), between=_stretch(0))
    assert find_loss(nothing.group.deletion_cost) is None
    assert find_loss(None) is None
    assert describe_cost([nothing], "inserts") == (
        "the cost to inserts is unknown: a deletion ran in each second, or in none"
    )


def test_of_several_runs_the_one_that_lost_most_is_told() -> None:
    runs = [_run(_stretch(1, rate)) for rate in (99.0, 70.0, 130.0)]
    assert "inserts lost 30%" in describe_cost(runs, "inserts")
    assert describe_cost(runs[2:], "inserts").startswith("deleting old data didn't slow inserts (")
