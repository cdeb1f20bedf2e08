"""One worker: connects, prefills, waits for the common start, inserts or queries, reports."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

import httpx

from .contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    TOO_EARLY,
    Failure,
    Go,
    Message,
    Progress,
    QueryRun,
    Ready,
    Role,
    RunSettings,
    Stage,
    Timestamps,
    WorkerResult,
)
from .environment import node_name
from .errors import Retryable, SimulatorError
from .logs import hide, redact
from .loop import Feed, insert_all
from .measure import Recorder
from .modules import load_module
from .modules.base import AnyModule, Job, Writer
from .modules.options import parse_options
from .workloads import load_workload
from .workloads.base import EventBlock, Workload

_log = logging.getLogger(__name__)

PREFILL_BATCH = 1000
"""Smallest batch of a prefill."""

_PROGRESS_INTERVAL_S = 1.0
_CONNECT_PATIENCE_S = 120.0
_CONNECT_INTERVAL_S = 0.1


class RunOver(SimulatorError):
    """The collector has given the run up, or can't be reached any more."""


class CollectorClient:
    """The collector as a worker sees it."""

    def __init__(self, url: str, settings: RunSettings, worker: int) -> None:
        self.worker = worker
        # No proxy from the environment: the collector is a neighbour. A held /ready is answered
        # after at most HOLD_S (collector), well within the timeout. `verify=False` only spares
        # loading certificates: the URL is plain HTTP.
        self._http = httpx.Client(
            base_url=url,
            headers={TOKEN_HEADER: settings.token, RUN_HEADER: settings.run_id},
            timeout=httpx.Timeout(60, connect=5),
            trust_env=False,
            verify=False,  # noqa: S501
        )
        self.failure: str | None = None

    def ready(self, stage: Stage, prefilled: int = 0) -> Go:
        """Wait until the stage begins; RunOver if it never will."""
        message = Ready(worker=self.worker, stage=stage, prefilled=prefilled)
        while True:
            go = Go.model_validate_json(self._post("/ready", message))
            if go.failure:
                raise RunOver(go.failure)
            if go.go:
                return go

    def progress(self, message: Progress) -> None:
        """Report progress, once; a failed report is made up for by the next."""
        try:
            answer = self._http.post("/progress", content=message.model_dump_json())
        except httpx.HTTPError as error:
            _log.warning("progress not delivered: %s", error)
            return
        if answer.status_code == httpx.codes.GONE:
            self.failure = answer.text

    def result(self, result: WorkerResult) -> None:
        """Hand in the result."""
        self._post("/result", result)

    def fail(self, reason: str) -> None:
        """Give the run up."""
        with suppress(httpx.HTTPError):
            failure = Failure(worker=self.worker, reason=redact(reason))
            self._http.post("/failure", content=failure.model_dump_json())

    def _post(self, path: str, message: Message) -> bytes:
        """Post until it is answered: the collector may not listen yet."""
        deadline = time.monotonic() + _CONNECT_PATIENCE_S
        while True:
            try:
                answer = self._http.post(path, content=message.model_dump_json())
                if answer.status_code != TOO_EARLY:
                    break
                problem = "it is still busy with another run"
            except httpx.TransportError as error:
                problem = str(error)
            if time.monotonic() > deadline:
                raise RunOver(f"the collector can't be reached: {problem}")
            # Nothing tells a client that a server has begun to listen.
            time.sleep(_CONNECT_INTERVAL_S)
        if answer.status_code == httpx.codes.GONE:
            raise RunOver(answer.text)
        if answer.is_error:
            raise SimulatorError(
                f"the collector refused {path}: {answer.status_code} {answer.text}"
            )
        return answer.content

    def close(self) -> None:
        self._http.close()


class ProgressReporter:
    """Reports once a second from its own thread, so also while the database doesn't answer."""

    def __init__(self, client: CollectorClient, read: Callable[[], Progress]) -> None:
        self._client = client
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(_PROGRESS_INTERVAL_S):
            self._client.progress(self._read())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def build(settings: RunSettings) -> tuple[Workload, AnyModule]:
    """The workload and the module that the settings name."""
    module_type = load_module(settings.module)
    options = parse_options(
        module_type.options_model, settings.options, lambda _: f"target {settings.target}"
    )
    hide([*options.secrets(), settings.token])
    workload_type = load_workload(settings.data.workload)
    workload_options = parse_options(
        workload_type.options_model, settings.data.workload_options, lambda _: "workload"
    )
    workload = workload_type(settings.data.seed, **workload_options.model_dump())
    return workload, module_type(options, Job.of(settings, workload.schema))


def run_worker(settings: RunSettings, worker: int, collector_url: str) -> int:
    """A worker's whole life; its exit status: 0 done, 1 failed (the collector was told why)."""
    client = CollectorClient(collector_url, settings, worker)
    try:
        work = {Role.WRITE: _insert, Role.READ: _query, Role.CHECK: _check}
        work[settings.group_of(worker).load.role](settings, worker, client)
    except RunOver as error:
        _log.error("the run is over: %s", error)
        return 1
    except (SimulatorError, Retryable) as error:
        _log.error("failed: %s", error)
        client.fail(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the collector must be told
        _log.exception("failed unexpectedly")
        client.fail(f"unexpected {type(error).__name__}: {error} (see the worker's log)")
        return 1
    finally:
        client.close()
    return 0


def share(total: int, workers: int, worker: int) -> int:
    """A worker's share of `total`, which all shares add up to."""
    return total // workers + (worker < total % workers)


def _insert(settings: RunSettings, worker: int, client: CollectorClient) -> None:
    workload, module = build(settings)
    group = settings.group_of(worker)
    load = group.load
    go = client.ready(Stage.PREPARED)
    first = go.first_event
    # With `restart` this run's first event gets the first timestamp again.
    time_origin = first if settings.data.timestamps is Timestamps.RESTART else 0

    def generate(start: int, count: int) -> EventBlock:
        return workload.block(worker, start, count, time_origin)

    def abort() -> None:
        if client.failure:
            raise RunOver(client.failure)

    retries = module.options.max_retries
    prefill = share(settings.data.prefill, load.workers, worker - group.first)
    if prefill:
        batch = max(PREFILL_BATCH, load.batch)
        with opened(module.writer(batch, prefill=True)) as writer:
            feed = Feed(generate, writer.encoder, first, prefill, batch)
            recorder = Recorder()
            recorder.begin(time.perf_counter())
            with ProgressReporter(client, _insert_progress(worker, "prefill", recorder)):
                insert_all(feed, writer, recorder, retries, abort)
    with opened(module.writer(load.batch)) as writer:
        feed = Feed(generate, writer.encoder, first + prefill, load.events, load.batch)
        feed.prime()
        feed.reset_clock()
        recorder = Recorder()
        with garbage_collection_paused():
            origin = _await_start(client, prefill)
            recorder.begin(origin)
            with ProgressReporter(client, _insert_progress(worker, "run", recorder)):
                insert_all(feed, writer, recorder, retries, abort)
                recorder.end()
    measured = recorder.result(feed.generate_s, feed.encode_s, feed.ceiling_per_s())
    client.result(
        WorkerResult(
            worker=worker, node=node_name(), elapsed_s=recorder.elapsed_s(), insert=measured
        )
    )


def _check(settings: RunSettings, worker: int, client: CollectorClient) -> None:
    """Connect to the database from where a worker runs."""
    _, module = build(settings)
    client.ready(Stage.PREPARED)
    module.open()
    try:
        module.server_info()
        origin = _await_start(client, 0)
    finally:
        module.close()
    elapsed = time.perf_counter() - origin
    client.result(WorkerResult(worker=worker, node=node_name(), elapsed_s=elapsed))


def _insert_progress(
    worker: int, stage: Literal["prefill", "run"], recorder: Recorder
) -> Callable[[], Progress]:
    def read() -> Progress:
        return Progress(
            worker=worker,
            stage=stage,
            elapsed_s=recorder.elapsed_s(),
            done=recorder.events,
            retries=recorder.retries,
        )

    return read


def _query(settings: RunSettings, worker: int, client: CollectorClient) -> None:
    _, module = build(settings)
    client.ready(Stage.PREPARED)
    module.open()
    try:
        queries = module.queries()
        answered: list[QueryRun] = []
        origin = _await_start(client, 0)

        def progress() -> Progress:
            elapsed = time.perf_counter() - origin
            return Progress(worker=worker, stage="run", elapsed_s=elapsed, done=len(answered))

        with ProgressReporter(client, progress):
            for run in range(1, settings.group_of(worker).load.runs + 1):
                for name, ask in queries.items():
                    if client.failure:
                        raise RunOver(client.failure)
                    answered.append(_asked(name, run, worker, ask))
    finally:
        module.close()
    elapsed = time.perf_counter() - origin
    client.result(
        WorkerResult(worker=worker, node=node_name(), elapsed_s=elapsed, queries=answered)
    )


def _asked(name: str, run: int, worker: int, ask: Callable[[], Sequence[object]]) -> QueryRun:
    """One query, timed until all rows are fetched. One that fails doesn't keep the others from
    being asked: that a database can't answer it is a result, too."""
    begin = time.perf_counter()
    try:
        rows = len(ask())
    except (Retryable, SimulatorError) as error:
        _log.error("query %s failed: %s", name, error)
        # It goes into the result and the table.
        said = redact(str(error))
        return QueryRun(query=name, run=run, worker=worker, duration_s=None, rows=None, error=said)
    duration = time.perf_counter() - begin
    return QueryRun(query=name, run=run, worker=worker, duration_s=duration, rows=rows)


def _await_start(client: CollectorClient, prefilled: int) -> float:
    """Wait for the common start; its instant on this process's `perf_counter`."""
    go = client.ready(Stage.RUN, prefilled)
    origin = time.perf_counter() + go.start_in_s
    time.sleep(go.start_in_s)
    return origin


@contextmanager
def opened(writer: Writer) -> Iterator[Writer]:
    """The writer, connected."""
    try:
        writer.open()
        yield writer
    finally:
        writer.close()


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: its pauses would be charged to the database.

    The loop makes no reference cycles, so memory stays flat (benchmarks/memory.py).
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
