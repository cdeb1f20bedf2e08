"""A day of a run by a compressed clock, in one process: what of it stays in memory, and in files."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from cli.plan.planning import PlannedRun
from cli.results.model import Result
from cli.results.store import StoredResult
from cli.run.experiments.long_runs import UnfinishedRun, coarsen_run
from cli.run.live.state import LiveState
from cli.run.probes.database import Counters, Use, merge_uses, summarize_use
from cli.run.probes.network import NetworkSnapshot, merge_networks
from cli.run.probes.timeline import MACHINE, OWN, AgingSeries, Step, Window, merge_steps
from cli.show.report import make_report
from simulator.collector.merge import merge_group
from simulator.collector.status import PhaseTracker
from simulator.contract import (
    DataSet,
    GroupStatus,
    Load,
    Phase,
    Progress,
    Role,
    RunResult,
    RunSettings,
    Status,
    make_groups,
)
from simulator.histograms import COARSE, Histogram
from simulator.worker.measure import Recorder
from simulator.worker.schedule import OpenLoop

DAY_S, HALF_S = 86_400, 43_200
WORKERS, BATCH = 2, 5_000
_EVERY_S = 3_600


@dataclass(frozen=True)
class Day:
    """What a simulated day left."""

    growth_mb_per_hour: float
    """Of everything together, in the day's second half."""
    result_mb: float
    report_mb: float
    unfinished_mb: float
    """A result that is kept while the run is under way."""

    def sizes_mb(self) -> list[tuple[str, float]]:
        """For a table."""
        return [
            ("result.json", self.result_mb),
            ("the same, kept before the end", self.unfinished_mb),
            ("report", self.report_mb),
            ("memory of worker, collector and command, an hour", self.growth_mb_per_hour),
        ]


class _Simulation:
    """All that keeps something of each second."""

    def __init__(self) -> None:
        self.load = Load(workers=WORKERS, batch=BATCH, rate_per_s=WORKERS * BATCH, duration_s=DAY_S)
        settings = RunSettings(
            run_id="day", token="t", target="day", module="blackhole",  # noqa: S106
            options={}, data=DataSet(), groups=make_groups(self.load),
        )  # fmt: skip
        self.phases = PhaseTracker(settings, 0.0)
        self.phases.enter(Phase.RUN)
        self.recorders = [Recorder(OpenLoop(1.0)) for _ in range(WORKERS)]
        self.origin = 1_000_000.0
        for recorder in self.recorders:
            recorder.begin(self.origin)
        self.steps = AgingSeries(merge_steps)
        self.uses = AgingSeries(merge_uses)
        self.traffic = AgingSeries(merge_networks)
        self.live = LiveState("insert", "day")
        self.live.begin_run("run 1")
        self.unfinished = UnfinishedRun(PlannedRun("run 1", 1, DataSet(), (self.load,)))
        self._histogram = Histogram(digits=COARSE)
        self._random = np.random.default_rng(1)

    def report(self, second: int) -> None:
        """What happens in a second."""
        latencies_s = self._random.lognormal(-4.5, 0.6, 20) * (1 + (second // 3600) % 3)
        self._histogram.add(latencies_s)
        latency = self._histogram.packed()
        for number, recorder in enumerate(self.recorders):
            sent, took_s = self.origin + second, float(latencies_s[number])
            recorder.record_due(sent, sent, sent, sent + took_s, BATCH)
            message = Progress(
                worker=number,
                stage="run",
                elapsed_s=second + 0.5,
                done=recorder.events,
                latency=latency,
            )
            self.phases.take_report(message, advanced=True)
        self._sample(second)
        for half_s in (0.0, 0.5):
            status = self._make_status(second + half_s)
            self.live.follow(status)
            self.unfinished.follow(status)

    def _sample(self, second: int) -> None:
        amounts: dict[Hashable, float] = {MACHINE: 1.5, OWN: 1.0}
        amounts |= {(f"program-{number}",): 0.01 * (1 + second % 3) for number in range(10)}
        self.steps.append(Step(second, second + 1.0, amounts))
        own = {(7, 0.0): Counters(0.7 * second, 4096 * second, 8192 * second)}
        disks = {f"sd{letter}": second / 7 for letter in "abcdefgh"}
        self.uses.append(Use(second, own, ("postgres",), 500_000_000 + second, disks))
        carried = {100 + number: (1000 * second, 9000 * second) for number in range(4)}
        self.traffic.append(NetworkSnapshot(second, carried))

    def _make_status(self, elapsed_s: float) -> Status:
        minute = self.phases.minutes[Role.WRITE].read_latest() if elapsed_s % 60 < 10 else None
        done = sum(recorder.events for recorder in self.recorders)
        group = GroupStatus(role=Role.WRITE, done=done, rate_per_s=1e4, p99_ms=40.0, minute=minute)
        return Status(phase=Phase.RUN, age_s=elapsed_s, elapsed_s=elapsed_s, groups=[group])

    def finish(self) -> RunResult:
        """The run, as a collector and the command finish it."""
        figures = {number: one.result() for number, one in enumerate(self._end())}
        group = merge_group(self.load, figures, dict.fromkeys(figures, "node"), {})
        group.minutes = self.phases.minutes[Role.WRITE].result()
        window = Window(0.0, DAY_S, 0.0, group.count)
        return RunResult(resources=summarize_use(list(self.uses), window, 2), groups=[group])

    def _end(self) -> Iterator[Recorder]:
        for recorder in self.recorders:
            recorder.end()
            yield recorder


def measure_day(folder: Path) -> Day:
    """Simulate a day; files are written into this folder."""
    simulation, kept = _Simulation(), {}
    own = psutil.Process()
    for second in range(DAY_S):
        simulation.report(second)
        if (second + 1) % _EVERY_S == 0:
            gc.collect()
            kept[second + 1] = own.memory_full_info().uss / 1e6
    growth = (kept[DAY_S] - kept[HALF_S]) / (DAY_S - HALF_S) * 3600
    unfinished = simulation.unfinished.make_run()
    assert unfinished is not None
    run = simulation.finish()
    coarsen_run(run)
    file = folder / "result.json"
    file.write_text(_make_result(run).model_dump_json(indent=1))
    stored = StoredResult("day", file, _make_result(run))
    report = make_report([stored], "A day")
    return Day(
        growth_mb_per_hour=growth,
        result_mb=file.stat().st_size / 1e6,
        report_mb=len(report.encode()) / 1e6,
        unfinished_mb=len(_make_result(unfinished).model_dump_json(indent=1)) / 1e6,
    )


def _make_result(run: RunResult) -> Result:
    options = {
        "workers": [WORKERS],
        "rate_per_s": WORKERS * BATCH,
        "batch": BATCH,
        "duration_s": DAY_S,
    }
    return Result(
        command="insert", target="day", module="blackhole", executor="local",
        started_at="2026-01-01T00:00:00+00:00", options={**options, "module": {}},
        environment={"tool": {}, "client": {}, "database": {}, "kubernetes": None}, runs=[run],
    )  # fmt: skip
