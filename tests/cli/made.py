"""Stored results, made for tests: as many runs as there are figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cli.plan.request import Request
from cli.plan.requests import CapacityRequest
from cli.results.answers import CapacityStep, Trial, TunedSetting, Tuning
from cli.results.faults import find_outages
from cli.results.model import ClientComparison, ClientTurn, Result
from cli.results.store import StoredResult
from cli.run.experiments.capacity import CapacitySearch, find_answer
from cli.run.experiments.search import choose_next, is_client_bound, judge_run
from cli.run.experiments.tuning import combine
from simulator.contract import (
    Client,
    DataSet,
    Execution,
    GroupResult,
    LatencyMs,
    Load,
    Lookup,
    Mark,
    Offered,
    QueryResult,
    Resources,
    Role,
    RunResult,
    Storage,
    Verification,
    WorkerSpan,
    WorkerTimeline,
)
from simulator.histograms import LatencyRecorder

from ..helpers import insert_run

STORED = Path(__file__).parent / "stored"
"""Result files as the first version wrote them."""

ENVIRONMENT: dict[str, Any] = {
    "tool": {"version": "0.1.0", "commit": "abc"},
    "client": {"cpu_model": "Some CPU", "cpus": 2, "memory_mb": 4000, "python": "3.12.1",
               "packages": {"numpy": "2.4.6"}},
    "database": {"version": "PostgreSQL 18.4 on x86_64, compiled", "settings": {"fsync": "on"}},
    "kubernetes": None,
}  # fmt: skip

OPTIONS: dict[str, Any] = {
    "primary_key": "db", "tables": "single", "num_inserts": 1000, "prefill": 0, "batch": 100,
    "insert_mode": "copy", "clean": True, "steps": 0, "module": {"copy_format": "binary"},
}  # fmt: skip


def stored(result: Result, name: str = "one") -> StoredResult:
    """As if it were kept somewhere."""
    return StoredResult(name, Path("results", name, "result.json"), result)


AnyRequest = TypeVar("AnyRequest", bound=Request)


def ask_for(
    kind: type[AnyRequest], load: Load, data: DataSet, readers: Load | None = None, **fields: Any
) -> AnyRequest:
    """A request with this work, whatever its options say."""
    return kind(**{"target": "x", **fields}).with_work(load, data, readers)


def of_job(result: Result, name: str) -> Result:
    """The same as the job of a campaign gave it: `alpha load 2`, without the number for a first one."""
    candidate, step, *number = name.split()
    fields = {"candidate": candidate, "step": step, "repetition": int(number[0]) if number else 1}
    return result.model_copy(update={"label": name} | fields)


def inserts(
    rates: Mapping[int, Sequence[float]],
    target: str = "alpha",
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Result:
    """A sweep: worker count -> inserts per second of each run."""
    runs = [
        insert_run(
            workers=workers,
            run=number,
            rate_per_s=rate,
            window_s=20.0,
            timeline=[(0, int(rate)), (1, int(rate) // 2), (3, 7)],
            slowest_worker=WorkerTimeline(worker=workers - 1, timeline=[(0, 11), (3, 3)]),
            latency_ms=LatencyMs(p50=1.5, p90=2.5, p99=3.0 + number, p99_9=40.25, max=500.125),
            client=client(0.1 * number),
            phases_s={"start": 0.5, "prepare": 0.25, "barrier": 0.125, "run": 20.5, "verify": 0.75,
                      "clean_up": 1.5},
            per_worker=[
                WorkerSpan(worker=worker, node=f"node-{worker}", start_s=0.001 * worker, end_s=20.0,
                           count=1000 - worker, measured=1000 - worker, cpu_s=1.0, clock_offset_s=0.0)
                for worker in range(workers)
            ],
        )
        for workers, values in rates.items()
        for number, rate in enumerate(values, 1)
    ]  # fmt: skip
    return _insert_result(
        runs, target, {"workers": list(rates), "runs": 3} | dict(options or {}), changes
    )


def open_loop(
    rates: Mapping[int, Sequence[float]],
    rate_per_s: float = 1000.0,
    saturated: bool = False,
    options: Mapping[str, Any] | None = None,
    **offered: Any,
) -> Result:
    """A sweep at a rate for 21 s, of which the first is the warm-up."""
    defaults = {
        "rate_per_s": rate_per_s, "arrivals": "poisson", "duration_s": 21.0, "warm_up_s": 1.0,
        "num_inserts": None,
    }  # fmt: skip
    result = inserts(rates, options=defaults | dict(options or {}))
    for group_run in result.writers:
        group = group_run.group
        achieved = int((group.rate_per_s or 0) * 20)
        due = int(rate_per_s * 20)
        values = {
            "rate_per_s": rate_per_s, "due": due, "achieved": achieved, "backlog_max": 50,
            "backlog_growth": 7, "backlog": [(0, 10), (1, 50), (2, 5)], "saturated": saturated,
            "own_delay_p99_ms": 0.25,
            "reason": f"{due:,} events were due in the window, but only {achieved:,} were done"
            if saturated else None,
        }  # fmt: skip
        group.offered = Offered(**(values | offered))
        group.service_ms = LatencyMs(p50=0.5, p90=0.75, p99=1.25, p99_9=2.0, max=3.0)
        group.warm_up_s = 1.0
    return result


def disturbed(*outages: tuple[float, float], target: str = "alpha") -> Result:
    """One run of 40 s with a mark at the beginning of each gap of so many seconds."""
    result = inserts({1: [100.0]}, target)
    ((run, group),) = [(group_run.run, group_run.group) for group_run in result.writers]
    group.gaps = [(at + 0.1, at + gap_s) for at, gap_s in outages if gap_s]
    run.marks = [
        Mark(at_s=at, ended_s=at, action=f"{at:g}s run number-{place}")
        for place, (at, _) in enumerate(outages, 1)
    ]
    group.timeline = [
        (second, 100)
        for second in range(40)
        if not any(began - 1 < second < ended for began, ended in group.gaps)
    ]
    group.outages = find_outages(run)
    group.verification = Verification(expected=100, stored=100, ok=True)
    group.lookup = Lookup(events=100, missing=0, doubled=0, per_group=1)
    return result


def steps(
    rates: Mapping[int, float], target: str = "alpha", options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Result:  # fmt: skip
    """Growing data: fill level -> inserts per second."""
    runs = [
        insert_run(workers=2, run=number, fill_level=level, rate_per_s=rate, window_s=20.0)
        for number, (level, rate) in enumerate(rates.items(), 1)
    ]
    merged = {"workers": [2], "runs": 1, "steps": len(rates)} | dict(options or {})
    return _insert_result(runs, target, merged, changes)


def capacity(
    at: float = 50_000.0,
    limits: Sequence[str] = ("p99=100ms",),
    client_bound: bool = False,
    max_steps: int = 24,
    cost_per_hour: float | None = None,
    **changes: Any,
) -> Result:
    """The search of a database whose p99 reaches 100 ms at this rate, and which does 100,000 events/s at
    most; with `client_bound` its client can't do more than `at`."""
    quest = CapacityRequest(
        target="x", workers=4, batch=100, limits=tuple(limits), max_steps=max_steps
    )
    course = CapacitySearch(
        quest, [_make_step(1, None, at, client_bound)], steps=[CapacityStep(run=1)]
    )
    assert course.goal is not None
    while (rate := choose_next(course.goal, course.tried)) is not None:
        run = _make_step(len(course.runs) + 1, rate, at, client_bound)
        course.runs.append(run)
        verdict = judge_run(run, quest.limits, 100)
        course.steps.append(
            CapacityStep(
                run=run.run, rate_per_s=rate, holds=verdict.holds, reasons=list(verdict.reasons),
                figures=dict(verdict.figures), client_bound=is_client_bound(run, verdict.limits),
            )
        )  # fmt: skip
    values: dict[str, Any] = {
        "command": "capacity", "target": "alpha", "module": "postgres", "executor": "local",
        "started_at": "2025-01-02T03:04:05+00:00", "options": {**quest.list_options(), "module": {}},
        "environment": ENVIRONMENT, "runs": course.runs, "cost_per_hour": cost_per_hour,
        "capacity": find_answer(course, cost_per_hour),
    }  # fmt: skip
    return Result(**(values | changes))


def tuned(
    over: Sequence[TunedSetting],
    first: Mapping[int, Sequence[float | None]],
    final: Mapping[int, Sequence[float]] | None = None,
    **changes: Any,
) -> Result:
    """A tuning: candidate -> its figures in the first stage, and in the comparison at the end."""
    stages = {1: first} | ({3: final} if final else {})
    trials: list[Trial] = []
    for stage, own in stages.items():
        for candidate, rates in own.items():
            for rate in rates:
                number = len(trials) + 1
                trials.append(
                    Trial(candidate=candidate, stage=stage, rate_per_s=rate, runs=[number])
                )
    runs = [
        insert_run(
            run=number,
            workers=2,
            rate_per_s=trial.rate_per_s,
            invalid_reasons=[] if trial.rate_per_s else ["no figure"],
        )
        for number, trial in enumerate(trials, 1)
    ]
    tuning = Tuning(
        over=list(over), candidates=combine(over), trials=trials, finalists=list(final or ())
    )
    values: dict[str, Any] = {
        "command": "tune", "target": "alpha", "module": "postgres", "executor": "local",
        "started_at": "2025-01-02T03:04:05+00:00", "options": OPTIONS, "environment": ENVIRONMENT,
        "runs": runs, "tuning": tuning,
    }  # fmt: skip
    return Result(**(values | changes))


def _make_step(number: int, rate: float | None, at: float, client_bound: bool) -> RunResult:
    offered = 100_000.0 if rate is None else rate
    p99 = 100.0 * offered / at
    saturated = offered > (at if client_bound else 100_000)
    due = int(offered * 25)
    done: dict[str, Any] = {
        "workers": 4,
        "run": number,
        "rate_per_s": offered,
        "window_s": 25.0,
        "count": due,
    }
    if rate is not None:
        done["offered"] = Offered(
            rate_per_s=rate, due=due, achieved=due // 2 if saturated else due, backlog_max=50,
            backlog_growth=7, saturated=saturated, reason="much" if saturated else None,
        )  # fmt: skip
        done["service_ms"] = LatencyMs(p50=0.5, p90=0.75, p99=1.25, p99_9=2.0, max=3.0)
    return insert_run(
        **done,
        latency_ms=LatencyMs(p50=p99 / 10, p90=p99 / 5, p99=p99, p99_9=2 * p99, max=3 * p99),
        client=client(0.2, bound=client_bound and saturated),
        storage=Storage(total_bytes=100 * due, events=due),
        resources=Resources(cpu_s=48.0, cpus=2.0, cpu_share=0.96 if rate is None else 0.5),
        timeline=[(0, due)],
    )


def _insert_result(
    runs: list[Any], target: str, options: dict[str, Any], changes: Mapping[str, Any]
) -> Result:
    values: dict[str, Any] = {
        "command": "insert", "target": target, "module": "postgres", "executor": "local",
        "started_at": "2025-01-02T03:04:05+00:00", "options": OPTIONS | options,
        "environment": ENVIRONMENT, "runs": runs,
    }  # fmt: skip
    return Result(**(values | dict(changes)))


def queries(
    durations: Mapping[str, Sequence[float | None]],
    target: str = "alpha",
    cold: float | None = 8.0,
    **changes: Any,
) -> Result:
    """Query -> seconds of each execution by one worker after the first one, which took `cold`; with
    `cold` None there was no such. None for an execution that failed."""
    first = [] if cold is None else [cold]
    query_results = [
        ask(query, [
            Execution(run=number, worker=0, duration_s=duration, rows=None if duration is None else 1,
                      error="no" if duration is None else None)
            for number, duration in enumerate([*first, *values], 1)
        ])
        for query, values in durations.items()
    ]  # fmt: skip
    of_run, of_group = (
        {n: changes.pop(n) for n in m.model_fields if n in changes}
        for m in (RunResult, GroupResult)
    )
    phases_s = {"start": 0.5, "prepare": 0.25, "run": 2.0, "clean_up": 0.25}
    group = GroupResult(role=Role.READ, **({"workers": 1, "queries": query_results} | of_group))
    runs = [RunResult(**({"phases_s": phases_s} | of_run), groups=[group])]
    values: dict[str, Any] = {
        "command": "query", "target": target, "module": "postgres", "executor": "local",
        "started_at": "2025-01-02T03:04:05+00:00",
        "options": {"workers": 1, "runs": 3, "module": {}}, "environment": ENVIRONMENT,
        "runs": runs,
    }  # fmt: skip
    return Result(**(values | changes))


def ask(query: str, executions: Sequence[Execution]) -> QueryResult:
    """A query that was asked by number."""
    answered = [execution for execution in executions if execution.duration_s is not None]
    return QueryResult(
        query=query, executions=len(answered), errors=len(executions) - len(answered),
        each=list(executions),
    )  # fmt: skip


def asked_by_the_clock(target: str = "alpha") -> Result:
    """Two runs of readers beside writers: of one query 10 and 20 ms, of the other 1 and 2 s."""
    beside = inserts({2: [100.0, 101.0]}, target)
    for run in (1, 2):
        figures = []
        for query, took_s in (("fast", 0.01), ("slow", 1.0)):
            recorder = LatencyRecorder()
            for _ in range(100):
                recorder.record(took_s * run)
            histogram = recorder.finish()
            figures.append(
                QueryResult(
                    query=query, executions=100, rows_min=1, rows_max=1, cold_s=took_s,
                    warm_s=[took_s * run] * 2, latency_ms=LatencyMs.of(histogram),
                    histogram=histogram,
                )
            )  # fmt: skip
        beside.runs[run - 1].groups.append(
            GroupResult(role=Role.READ, workers=2, window_s=20.0, rate_per_s=10.0, queries=figures)
        )
    return beside.model_copy(update={"command": "mixed"})


def client(share: float, bound: bool = False) -> Client:
    """What the load generator cost."""
    return Client(
        cpu_s=1.0, cpu_share=share, generate_s=0.1, encode_s=0.2, ceiling_share=0.01,
        throttled_share=None, bound=bound, bound_reason="much to do" if bound else None,
    )  # fmt: skip


_WAYS = {"lean": "the lean path (copy)", "official": "psycopg2's copy_expert"}


def _client_run(
    number: int, rate: float, cpu_s: float, p50: float, valid: bool = True
) -> RunResult:
    return insert_run(
        workers=1, run=number, rate_per_s=rate, window_s=20.0,
        invalid_reasons=[] if valid else ["1 of 9 events is missing"],
        latency_ms=LatencyMs(p50=p50, p90=9, p99=4 * p50, p99_9=10, max=11),
        client=client(0.1).model_copy(update={"cpu_s": cpu_s}),
    )  # fmt: skip


def compare_asking_in_turns() -> Result:
    """A run that loads; then lean: 10,000 queries/s at 50 µs, p50 0.1 ms; official: a quarter, at 200 µs, p50
    0.4 ms. Each answer has ten rows."""
    runs, turns = [_asking_run(1, 99.0, 1.0, 9.0)], []
    for number in range(2, 6):
        lean = number in (2, 5)
        turns.append(ClientTurn(client="lean" if lean else "official", run=number))
        rate = (10_000 if lean else 2_500) + number
        runs.append(_asking_run(number, rate, 50.0 if lean else 200.0, 0.1 if lean else 0.4))
    ways = {"lean": "the lean path", "official": "psycopg2-binary"}
    options = {
        "workers": 2,
        "runs": 2,
        "duration_s": 20.0,
        "reader_in_flight": 8,
        "prefill": 5000,
        "module": {},
    }
    values = inserts({1: [1.0]}).model_dump() | {
        "command": "clients", "runs": runs, "options": options,
        "clients": ClientComparison(ways=ways, turns=turns, asks=True),
    }  # fmt: skip
    return Result.model_validate(values)


def _asking_run(number: int, rate: float, cpu_us: float, p50: float) -> RunResult:
    count = int(rate * 20)
    times = LatencyMs(p50=p50, p90=9, p99=4 * p50, p99_9=10, max=11)
    query = QueryResult(
        query="point", executions=count, rows=10 * count, rows_min=10, rows_max=10, latency_ms=times
    )
    group = GroupResult(
        role=Role.READ, workers=2, rate_per_s=rate, window_s=20.0, latency_ms=times, queries=[query],
        client=client(0.1).model_copy(update={"cpu_s": cpu_us * rate * 20 / 1e6}),
    )  # fmt: skip
    return RunResult(run=number, groups=[group])


def compare_in_turns(*, lost: bool = False, bound: bool = False) -> Result:
    """Lean: 100,000/s at 0.5 µs, p50 2 ms; official: a quarter, at 4 µs, p50 6 ms."""
    runs, turns = [], []
    for number in range(1, 5):
        lean = number in (1, 4)
        name = "lean" if lean else "official"
        rate = (100_000 if lean else 25_000) + number
        cpu_us = 0.5 if lean else 4.0
        valid = not (lost and not lean)
        run = _client_run(number, rate, cpu_us * rate * 20 / 1e6, 2.0 if lean else 6.0, valid)
        if bound and lean and run.groups[0].client is not None:
            run.groups[0].client.bound = True
        runs.append(run)
        turns.append(ClientTurn(client=name, run=number))
    base = inserts({1: [1.0]})
    values = base.model_dump() | {
        "command": "clients", "runs": runs,
        "clients": ClientComparison(ways=_WAYS, turns=turns),
    }  # fmt: skip
    return Result.model_validate(values)
