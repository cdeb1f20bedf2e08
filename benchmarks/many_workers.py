"""One collector with 1,000 workers: do they start together, what does it need, how soon is the report?

    python -m benchmarks.many_workers [--quick]

The collector is a real process (`python -m simulator.main collector`, target `blackhole`). The workers
are simulated by one asyncio process, in the collector's own messages over loopback: they get ready,
start when they are told to, report progress once a second for some seconds, and hand in a result with
a real histogram. The release skew is the spread of their start instants, all on this process's clock.
That process has to read 1,000 answers itself, and on a machine of few cores it competes with the
collector: the skew is an upper bound.

The goals: skew <= 100 ms, peak memory of the collector <= 300 MB. The ratio is that of the skew to the
time in which the collector's answers went out. `--quick` takes 200 workers. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from dataclasses import dataclass, field

from simulator.contract import (
    Go,
    Message,
    Progress,
    Ready,
    Report,
    Stage,
    WorkerFigures,
    WorkerResult,
)
from simulator.histograms import Histogram
from simulator.worker.measure import Recorder

from .processes import RunningCollector, SettingsFile, settings_file, start_collector
from .support import conclude, is_quick, scratch_folder, show

GOAL_SKEW_S, GOAL_MB = 0.1, 300
EVENTS = 1_000
REPORTS = 5
"""Progress reports of each worker."""


@dataclass
class Seen:
    """What the simulated workers saw, on this process's clock."""

    asked_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    last_result_s: float = 0.0


def make_measurement() -> tuple[WorkerFigures, Histogram]:
    """A worker's result, as of 5 s at 200 requests a second of varying latency; and the latency as it tells
    it meanwhile."""
    recorder = Recorder()
    recorder.begin(time.perf_counter() - REPORTS)
    begin = time.perf_counter() - REPORTS
    for number in range(EVENTS):
        sent = begin + number / EVENTS * REPORTS
        recorder.record(sent, sent + 0.001 + number % 97 / 10_000, 1)
    recorder.end()
    result = recorder.result(generate_s=0.001, encode_s=0.001, ceiling_per_s=1e6)
    result = result.model_copy(update={"start_s": 0.0, "end_s": float(REPORTS)})
    return result, recorder.latency_so_far()


class Connection:
    """One worker's connection: HTTP as thin as it gets, since 1,000 of them share a process here."""

    def __init__(self, settings: SettingsFile, port: int) -> None:
        self._port = port
        headers = {"Host": "collector", **settings.headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, path: str, body: str = "") -> bytes:
        """The answer's body; RuntimeError with the collector's reason if it refuses."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write((head + body).encode())
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
        content = await self._reader.readexactly(length)
        if not lines[0].startswith("http/1.1 200"):
            raise RuntimeError(f"{path}: {lines[0]} {content.decode()}")
        return content

    async def post(self, path: str, message: Message) -> bytes:
        return await self.ask("POST", path, message.model_dump_json())


async def worker(
    number: int,
    connection: Connection,
    measurement: tuple[WorkerFigures, Histogram],
    seen: Seen,
) -> None:
    """One simulated worker."""
    insert, latency = measurement
    clock = time.perf_counter
    await connection.open()
    for stage in (Stage.PREPARED, Stage.RUN):
        go = Go(go=False)
        seen.asked_s.append(clock())
        while not go.go:
            message = Ready(worker=number, stage=stage)
            content = await connection.post("/ready", message)
            now = clock()
            go = Go.model_validate_json(content)
    origin = now + go.start_in_s
    seen.answered_s.append(now)
    seen.start_s.append(origin)
    # Each reports at its own moment of the second, as real workers do.
    await asyncio.sleep(max(0.0, origin - clock()) + number % 100 / 100)
    for report in range(1, REPORTS + 1):
        progress = Progress(
            worker=number,
            stage="run",
            elapsed_s=clock() - origin,
            done=EVENTS * report // REPORTS,
            backlog=number,
            latency=latency,
        )
        await connection.post("/progress", progress)
        await asyncio.sleep(1)
    result = WorkerResult(
        worker=number, node="simulated", elapsed_s=clock() - origin, figures=insert
    )
    await connection.post("/result", result)
    seen.last_result_s = clock()


async def all_workers(settings: SettingsFile, collector: RunningCollector) -> tuple[Seen, Report]:
    """All of them, then the report."""
    seen, measurement = Seen(), make_measurement()
    port = int(collector.url.rpartition(":")[2])
    connections = [Connection(settings, port) for _ in range(settings.run.workers)]
    await asyncio.gather(
        *(
            worker(number, connection, measurement, seen)
            for number, connection in enumerate(connections)
        )
    )
    report = await connections[0].ask("GET", "/report")
    return seen, Report.model_validate_json(report)


def main() -> int:
    """Measure; 0 if the goals are met."""
    workers = 200 if is_quick(__doc__) else 1_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with scratch_folder() as folder:
        settings = settings_file(folder, workers, EVENTS, batch=1, options={})
        with start_collector(settings) as collector:
            before_s = collector.cpu_s()
            began = time.perf_counter()
            seen, report = asyncio.run(all_workers(settings, collector))
            ended = time.perf_counter()
            spent_s, peak_mb = collector.cpu_s() - before_s, collector.peak_mb()
    writers = report.run.writers
    assert writers is not None
    if len(writers.per_worker) != workers or writers.count != workers * EVENTS:
        raise AssertionError("the report lacks workers")
    skew_s = max(seen.start_s) - min(seen.start_s)
    answers_s = max(seen.answered_s) - min(seen.answered_s)
    rows = [
        ["release skew", f"{skew_s * 1000:.1f} ms"],
        ["answers to the barrier, first to last", f"{answers_s * 1000:.0f} ms"],
        ["last result to report", f"{ended - seen.last_result_s:.2f} s"],
        ["collector's peak memory", f"{peak_mb:.0f} MB"],
        ["collector's CPU, all messages", f"{spent_s:.1f} s in {ended - began:.0f} s"],
        ["load average", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"],
    ]
    show([f"{workers:,} workers", ""], rows)
    return conclude(
        f"many_workers: ratio {skew_s / answers_s:.2f}, skew {skew_s * 1000:.0f} ms"
        f" (goal <= {GOAL_SKEW_S * 1000:.0f} ms), {peak_mb:.0f} MB (goal <= {GOAL_MB} MB)",
        skew_s <= GOAL_SKEW_S and peak_mb <= GOAL_MB,
    )


if __name__ == "__main__":
    sys.exit(main())
