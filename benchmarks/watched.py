"""Workers of a run, each in a process of its own, whose common start the benchmark gets to know exactly.

A worker does all that one of a real run does: it asks its collector for the start, twice, and reports to it
once a second by HTTP. Only the collector is none: it holds the workers till all are ready and
then names an instant.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.contract import Go, Ready, RunSettings, Stage, StoredPart, WorkerResult
from simulator.worker.base import CollectorClient, Worker
from simulator.worker.writing import WritingWorker

from .support import http_server

_START_IN_S = 0.3
"""From the last worker's being ready to the common start: the answer must have come to all of them."""


@dataclass(frozen=True)
class Watched:
    """What a worker did. Times are `time.perf_counter`'s, which on Linux is one clock for all processes."""

    begin_s: float
    """The common start, as this worker has it."""
    result: WorkerResult
    sent: Sequence[tuple[int, float]] = ()
    """When each request left, by the number of its last event, if the worker kept it."""


class Watching(Worker):
    """A worker that tells when it began."""

    begin_s = 0.0

    def _await_start(self, prefilled: int = 0, early_s: float = 0.0) -> float:
        self.begin_s = super()._await_start(prefilled, early_s)
        return self.begin_s

    def watched(self, result: WorkerResult) -> Watched:
        """What is known after `run`."""
        return Watched(self.begin_s, result)


class WatchedWorker(Watching, WritingWorker):
    """A writer that tells when it began."""


class _Collector:
    """Answers as a collector does; for a server's threads."""

    def __init__(self, workers: int, stored: Sequence[StoredPart]) -> None:
        self._waiting = workers
        self._stored = list(stored)
        self._all_ready = threading.Condition()
        self._start_s = 0.0

    def __call__(self, url: str, request: bytes, body: bytes) -> tuple[int, str, bytes]:
        if b"/ready" not in request:
            return 200, "application/json", b"{}"
        ready = Ready.model_validate_json(body)
        go = Go(go=True, stored=self._stored)
        if ready.stage is Stage.RUN:
            go = Go(go=True, start_in_s=self._await_all() - time.perf_counter())
        return 200, "application/json", go.model_dump_json().encode()

    def _await_all(self) -> float:
        with self._all_ready:
            self._waiting -= 1
            if not self._waiting:
                self._start_s = time.perf_counter() + _START_IN_S
                self._all_ready.notify_all()
            self._all_ready.wait_for(lambda: self._waiting <= 0)
            return self._start_s


def run_workers(
    settings: RunSettings,
    make: Callable[[RunSettings, int, CollectorClient], Watching],
    stored: Sequence[StoredPart] = (),
) -> list[Watched]:
    """Run all workers of these settings to their end, side by side; what each did. `stored`: what readers
    are told that they can ask about.

    Raises RuntimeError if one of them failed; its error is on standard error.
    """
    # As pods and the local executor have it: numpy's own threads would take each other's CPU.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    processes = multiprocessing.get_context("spawn")
    with http_server(_Collector(settings.workers, stored)) as url:
        running = []
        for number in range(settings.workers):
            receiver, sender = processes.Pipe(duplex=False)
            arguments = (settings, number, url, make, sender)
            process = processes.Process(target=_live, args=arguments, daemon=True)
            process.start()
            sender.close()
            running.append((process, receiver))
        watched: list[Watched] = []
        try:
            for number, (_, receiver) in enumerate(running):
                watched.append(_receive(receiver, number))
        finally:
            for process, _ in running:
                process.terminate()
                process.join()
    return watched


def _receive(receiver: Any, number: int) -> Watched:
    try:
        watched: Watched = receiver.recv()
    except EOFError as error:
        raise RuntimeError(f"worker {number} failed: see above") from error
    return watched


def _live(
    settings: RunSettings,
    number: int,
    url: str,
    make: Callable[[RunSettings, int, CollectorClient], Watching],
    sender: Any,
) -> None:
    client = CollectorClient(url, settings, number)
    try:
        worker = make(settings, number, client)
        sender.send(worker.watched(worker.run()))
    finally:
        client.close()
