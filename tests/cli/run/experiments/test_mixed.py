"""What `mixed`, `query` and `insert` refuse, and the runs that `mixed` plans."""

from __future__ import annotations

from collections import Counter

import click
import pytest

from cli.main import commands
from cli.plan.planning import plan_mix
from cli.plan.requests import MixedRequest
from cli.system.errors import CliError
from cli.system.processes import Interrupts
from simulator.contract import Role

MIX = MixedRequest(
    target="x", workers=3, rate_per_s=100, reader_count=2, duration_s=10, prefill=500, runs=3
)
WRITE, READ = Role.WRITE, Role.READ


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("query --rate 5", "--rate and --warm-up need a --duration"),
        ("query --warm-up 5s", "--rate and --warm-up need a --duration"),
        ("query --duration 5s --runs 2", "--runs and --duration both say when a run ends"),
        ("mixed --arrivals even", "give one"),
        ("mixed --warm-up 60s", "leaves nothing of --duration 60s"),
        ("mixed --queries nothing", "there is no query 'nothing'"),
        ("mixed --queries count-events=x", "write a weight as in count-events=3"),
        ("mixed --queries count-events=0", "at least one weight must be above 0"),
        ("mixed --queries count-events,count-events=2", "write each query once"),
        ("mixed --target blackhole", "stores nothing to query"),
        ("insert --num-inserts 5 --duration 5s", "give one of them"),
        ("insert --arrivals even", "give both"),
        ("insert --duration 5x", "write a time as in 30s, 5m or 1h"),
        ("insert --duration 0s", "must be longer than 0 s"),
        ("insert --warm-up 5m --duration 300", "leaves nothing of --duration 300s"),
        ("insert --rate 0", "is not in the range x>0"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: str, said: str) -> None:
    command, *rest = arguments.split()
    with pytest.raises((CliError, click.UsageError)) as caught:
        commands.main(
            [command, "--target", "embedded", *rest], standalone_mode=False, obj=Interrupts()
        )
    error = caught.value
    assert said in (error.message if isinstance(error, CliError) else error.format_message())


def test_without_a_baseline_all_runs_are_mixed() -> None:
    plan = plan_mix(MIX).runs
    assert [(planned.label, planned.run) for planned in plan] == [
        (f"3 writers and 2 readers, run {run} of 3", run) for run in (1, 2, 3)
    ]
    assert all(planned.loads == (MIX.load, MIX.readers) for planned in plan)


def test_with_a_baseline_the_groups_take_turns_and_each_is_first_once() -> None:
    plan = plan_mix(MIX.model_copy(update={"baseline": True})).runs
    arms = {(WRITE, READ), (WRITE,), (READ,)}
    at_work = [tuple(load.role for load in planned.at_work) for planned in plan]
    assert Counter(at_work) == dict.fromkeys(arms, 3)
    turns = [at_work[start : start + 3] for start in (0, 3, 6)]
    assert all(set(turn) == arms for turn in turns)
    assert {turn[0] for turn in turns} == arms
    for planned, roles in zip(plan, at_work, strict=True):
        writers, readers = planned.loads
        # As many workers, and the same data to begin with, whoever is at work.
        assert (writers.workers, readers.workers) == (3, 2)
        assert writers.role is (WRITE if WRITE in roles else Role.FILL)
        assert readers.role is (READ if READ in roles else Role.CHECK)
