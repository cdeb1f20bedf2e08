"""What 1,000 workers of a ten-minute run come to: the size of the result, the collector's memory, the length
of its messages. The collector as a process, with as many connections: benchmarks/many_workers.py."""

from __future__ import annotations

import random
import resource
import time
import tracemalloc

import pytest

from simulator import machine
from simulator.collector.barrier import Barrier
from simulator.collector.merge import merge_group
from simulator.collector.status import PhaseTracker
from simulator.contract import (
    Execution,
    Load,
    Offered,
    Phase,
    Progress,
    QueryResult,
    Role,
    RunResult,
    WorkerResult,
)
from simulator.errors import SimulatorError
from simulator.histograms import COARSE, Histogram
from simulator.machine import check_files

from ..helpers import histogram_of, settings, worker_figures

WORKERS, SECONDS = 1_000, 600
LOAD = Load(workers=WORKERS, events=SECONDS * 100, duration_s=SECONDS, rate_per_s=100.0 * WORKERS)


def _ten_minutes() -> str:
    """A writer's result at 100 requests a second, as it is sent: `"worker":0`."""
    chance = random.Random(1)
    histogram = Histogram.of([chance.lognormvariate(8, 1) / 1e6 for _ in range(SECONDS * 100)])
    figures = worker_figures(
        end_s=float(SECONDS),
        count=SECONDS * 100,
        histogram=histogram,
        service_histogram=histogram,
        timeline=[(second, 90 + second % 20) for second in range(SECONDS)],
        offered=Offered(
            due=SECONDS * 100,
            unsent=0,
            due_timeline=[(second, 100) for second in range(SECONDS)],
            own_delay=histogram,
        ),
        gaps=[(float(second), second + 0.6) for second in range(10, SECONDS, 60)],
    )
    result = WorkerResult(
        worker=0, node="node-with-a-long-name-000", elapsed_s=601.0, figures=figures
    )
    return result.model_dump_json()


def test_what_the_collector_keeps_of_each_fits_its_memory() -> None:
    """Of 512 MB the process itself needs 80."""
    text = _ten_minutes()
    some = 50
    tracemalloc.start()
    try:
        results = [WorkerResult.model_validate_json(text) for _ in range(some)]
        kept_mb = tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()
    assert len(results) == some
    assert kept_mb / some * WORKERS < 250


def test_the_result_of_many_is_small() -> None:
    """`result.json` may have 5 MB."""
    figures = WorkerResult.model_validate_json(_ten_minutes()).figures
    assert figures is not None
    workers = range(WORKERS)
    group = merge_group(
        LOAD,
        dict.fromkeys(workers, figures),
        dict.fromkeys(workers, "node-with-a-long-name-000"),
        dict.fromkeys(workers, 99.0),
    )
    assert group.workers == len(group.per_worker) == WORKERS
    assert group.gaps == figures.gaps
    assert len(RunResult(groups=[group]).model_dump_json(indent=1)) < 1e6
    # All of them were late: one line.
    [late] = [reason for reason in group.invalid_reasons if "late" in reason]
    assert late.endswith("and 980 more started up to 99.00 s late") and len(late) < 200


@pytest.mark.parametrize(("readers", "kept"), [(250, 2_750), (900, 9_900), (WORKERS, 0)])
def test_executions_of_many_readers(readers: int, kept: int) -> None:
    """22 of each reader: 5,500, 19,800 and 22,000."""

    def ask(worker: int) -> list[QueryResult]:
        histogram = histogram_of(*[1_000 + worker] * 8)
        executions = [
            Execution(run=run, worker=worker, duration_s=0.001234567, rows=10, bytes=2_000)
            for run in range(1, 12)
        ]
        return [
            QueryResult(
                query=query, executions=11, cold_s=0.002, warm_s=[0.001], rows=110, bytes=22_000,
                rows_min=10, rows_max=10, histogram=histogram, each=executions,
            )
            for query in ("newest-per-device", "temperature-stats")
        ]  # fmt: skip

    load = Load(role=Role.READ, workers=readers, runs=11)
    figures = {
        number: worker_figures(count=22, queries=ask(number), histogram=histogram_of(1_000))
        for number in range(readers)
    }
    group = merge_group(load, figures, dict.fromkeys(figures, "node"), {})
    assert [len(query.each) for query in group.queries] == [kept, kept]
    assert [query.executions for query in group.queries] == [11 * readers] * 2
    assert all(len(query.warm_s) == readers and query.latency_ms for query in group.queries)
    assert len(RunResult(groups=[group]).model_dump_json(indent=1)) < 5e6


def test_what_the_collector_says_while_they_work() -> None:
    """Asked for several times a minute, and written into its log as often."""
    own = settings(workers=WORKERS, duration_s=SECONDS, rate_per_s=LOAD.rate_per_s)
    barrier = Barrier(own, 0.0)
    phases = PhaseTracker(own, 0.0)
    barrier.start()
    phases.enter(Phase.RUN)
    assert len(phases.status(barrier, None).model_dump_json()) < 2_000  # 20 of those missing
    latency = Histogram.of([0.001 + 0.0001 * number for number in range(100)] * 10, COARSE)
    for report in (1, 2):
        for number in range(WORKERS):
            message = Progress(
                worker=number, stage="run", elapsed_s=report, done=100 * report, latency=latency
            )
            phases.take_report(message, barrier.advance(message))
    began = time.process_time()
    status = phases.status(barrier, None)
    spent_s = time.process_time() - began
    assert status.groups[0].done == WORKERS * 200
    assert len(status.model_dump_json()) < 2_000
    # It is asked for twice a second at most, which takes time of one CPU.
    assert spent_s < 0.2


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ((1_024, 1_048_576), (65_536, 1_048_576)),
        ((1_024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((1_024, 4_096), (4_096, 4_096)),
        ((1_048_576, 1_048_576), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_connections_for_all(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: tuple[int, int] | None
) -> None:
    """Many systems limit a process to 1,024 files: too few for 1,000 workers and the rest."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: calls.append(pair))
    machine.allow_files()
    assert calls == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("hard", "workers", "in_flight", "said"),
    [
        (64, 16, 32, None),
        (64, 17, 1, "collector of 17 workers needs 66 open files, and may have 64"),
        (64, 40, 1, "by `ulimit -n 112`, or use 16 workers at most"),
        (64, 1, 100, "worker with 100 requests in flight needs 132 open files, and may have 64"),
        (64, 1, 100, "by `ulimit -n 132`, or use 32 requests in flight at most"),
        (20, 1, 1, "by `ulimit -n 34`$"),
        (resource.RLIM_INFINITY, 1_000, 64, None),
        (4_096, 1_000, 64, None),
    ],
)
def test_too_few_files_are_refused_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch, hard: int, workers: int, in_flight: int, said: str | None
) -> None:
    """They cost a minute of waiting and 30 MB of log, and then no word from workers."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (min(hard, 64), hard))
    if said is None:
        check_files(workers, in_flight)
        return
    with pytest.raises(SimulatorError, match=said):
        check_files(workers, in_flight)
