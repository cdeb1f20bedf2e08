"""What all workers share: the client of the collector, settings, the common start, the result."""

from __future__ import annotations

import gc
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, BinaryIO, Literal, cast
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from ..contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    TOO_EARLY,
    Failure,
    Go,
    Message,
    Progress,
    ProgressAnswer,
    Ready,
    RunSettings,
    Stage,
    WorkerAnswers,
    WorkerFigures,
    WorkerResult,
)
from ..errors import SimulatorError, redact
from ..machine import Reading, StallWatch, check_files, measure_machine, node_name, read_machine
from ..modules import build
from .measure import Recorder
from .schedule import lower_priority

_log = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S = 1.0
_CONNECT_PATIENCE_S = 120.0
_CONNECT_INTERVAL_S = 0.1
_REPORT_CONNECT_S, _REPORT_PATIENCE_S = 5.0, 60.0
_GATEWAY_ERRORS = (502, 503, 504)
"""What a load balancer answers while the collector doesn't listen."""


class RunOver(SimulatorError):
    """The collector has given the run up, or can no longer be reached."""


class ReportConnection:
    """Posts a worker's progress over one connection, once a second, from one thread.

    Garbage collection is paused while a worker measures, and each request of httpx leaves 6 KB in reference
    cycles: workers grew by 20 MB an hour. The standard library's client leaves none.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """`url`: the collector's; plain HTTP."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port, timeout=_REPORT_CONNECT_S)
        self._headers = {**headers, "content-type": "application/json"}

    def post(self, path: str, body: str) -> tuple[int, bytes]:
        """Returns the status and content of the answer. OSError or HTTPException if there is none."""
        try:
            return self._post(path, body)
        except ConnectionError:
            # The collector closes connections that were idle, for example between two phases. After a timeout
            # nothing is sent again: the second attempt would wait just as long.
            return self._post(path, body)

    def _post(self, path: str, body: str) -> tuple[int, bytes]:
        try:
            if self._connection.sock is None:
                self._connect()
            self._connection.request("POST", path, body.encode(), self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self._connection.close()
            raise

    def _connect(self) -> None:
        self._connection.connect()
        self._connection.sock.settimeout(_REPORT_PATIENCE_S)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class CollectorClient:
    """The collector as a worker sees it."""

    def __init__(self, url: str, settings: RunSettings, worker: int) -> None:
        self.worker = worker
        self._linger_s = settings.linger_s
        # No proxy from the environment: the collector is a neighbour. The collector answers a held /ready
        # after HOLD_S at most, well within the timeout. `verify=False` only avoids loading certificates: the
        # URL is plain HTTP.
        headers = {TOKEN_HEADER: settings.token, RUN_HEADER: settings.run_id}
        self._reports = ReportConnection(url, headers)
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(60, connect=5),
            trust_env=False,
            verify=False,  # noqa: S501
        )
        self.failure: str | None = None

    def ready(self, stage: Stage, prefilled: int = 0) -> Go:
        """Wait until the stage begins. RunOver if it never will."""
        message = Ready(worker=self.worker, stage=stage, prefilled=prefilled)
        while True:
            go = Go.model_validate_json(self._post("/ready", message))
            if go.failure:
                raise RunOver(go.failure)
            if go.go:
                return go

    def progress(self, message: Progress) -> float | None:
        """Report progress once; the next report supersedes a lost one. Returns in how many seconds this
        worker must end, or None if it needn't end early."""
        try:
            status, content = self._reports.post("/progress", message.model_dump_json())
            if status == httpx.codes.GONE:
                self.failure = content.decode(errors="replace")
            if httpx.codes.is_error(status):
                return None
            return ProgressAnswer.model_validate_json(content).ends_in_s
        except (OSError, HTTPException, ValidationError) as error:
            _log.warning("progress not delivered: %s", error)
            return None

    def result(self, result: WorkerResult) -> None:
        """Hand in the result. Retries for as long as the collector keeps its report."""
        self._post("/result", result, self._linger_s)

    def answers(self, answers: WorkerAnswers) -> None:
        """Hand in answers."""
        self._post("/answers", answers, self._linger_s)

    def fail(self, reason: str) -> None:
        """Give the run up."""
        with suppress(httpx.HTTPError):
            failure = Failure(worker=self.worker, reason=redact(reason))
            self._http.post("/failure", content=failure.model_dump_json())

    @contextmanager
    def open_recording(self) -> Iterator[BinaryIO]:
        """The run's recording, packed, as soon as the collector has it."""
        from ..workloads.recording.delivery import Streamed

        request = self._http.build_request("GET", "/recording")
        answer = self._ask("/recording", lambda: self._http.send(request, stream=True))
        with closing(answer):
            yield cast(BinaryIO, Streamed(answer.iter_raw()))

    def _post(self, path: str, message: Message, patience_s: float | None = None) -> bytes:
        content = message.model_dump_json()
        return self._ask(path, lambda: self._http.post(path, content=content), patience_s).content

    def _ask(
        self, path: str, send: Callable[[], httpx.Response], patience_s: float | None = None
    ) -> httpx.Response:
        """Send until there is an answer: the collector may not listen yet."""
        deadline = time.monotonic() + (patience_s or _CONNECT_PATIENCE_S)
        while True:
            # Checked before sending, so time in which this process was stopped doesn't count.
            is_last = time.monotonic() > deadline
            try:
                answer = send()
                if answer.is_error:
                    answer.read()
                if answer.status_code == TOO_EARLY:
                    # The collector is there. It begins this run once the tool has fetched the last run's
                    # report.
                    time.sleep(_CONNECT_INTERVAL_S)
                    deadline = time.monotonic() + (patience_s or _CONNECT_PATIENCE_S)
                    continue
                if answer.status_code in _GATEWAY_ERRORS:
                    problem = f"{answer.status_code} {answer.reason_phrase}"
                else:
                    break
            except httpx.TransportError as error:
                problem = str(error)
            if is_last:
                raise RunOver(f"can't reach the collector: {problem}")
            # Nothing tells a client that a server has begun to listen.
            time.sleep(_CONNECT_INTERVAL_S)
        if answer.status_code == httpx.codes.GONE:
            raise RunOver(answer.text)
        if answer.is_error:
            raise SimulatorError(
                f"the collector refused {path}: {answer.status_code} {answer.text}"
            )
        return answer

    def close(self) -> None:
        self._reports.close()
        self._http.close()


@contextmanager
def reporting(
    client: CollectorClient,
    read: Callable[[], Progress],
    end_early: Callable[[float], object] = lambda at: None,
    stage: Literal["prefill", "run"] = "run",
) -> Iterator[None]:
    """Report progress once a second from a thread, so also while the database doesn't answer. `end_early` is
    called with the instant (`time.perf_counter()`) at which the worker must end. If progress can't be read,
    the report still says that the worker is alive; otherwise the run would be given up."""
    stop = threading.Event()

    def report() -> None:
        lower_priority()
        latest, problem = Progress(worker=client.worker, stage=stage, elapsed_s=0, done=0), ""
        while not stop.wait(_PROGRESS_INTERVAL_S):
            try:
                latest = read()
            except Exception as error:  # noqa: BLE001 - what is measured must not be lost by it
                if repr(error) != problem:
                    _log.exception("can't read how far this worker is")
                problem = repr(error)
            ends_in_s = client.progress(latest)
            if ends_in_s is not None:
                end_early(time.perf_counter() + ends_in_s)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read_progress(
    worker: int,
    stage: Literal["prefill", "run"],
    recorder: Recorder,
    events_per_request: int = 1,
    most: int | None = None,
    failed: int = 0,
) -> Progress:
    """What the recorder knows so far. Not called in the sender's thread, which is held up by some 20 µs.

    `most`: the events of the whole stage, if they end it. `failed`: requests that were given up, which the
    recorder doesn't count as done.
    """
    running = stage == "run"
    backlog = recorder.backlog(events_per_request, most) if running else None
    return Progress(
        worker=worker,
        stage=stage,
        elapsed_s=recorder.elapsed_s(),
        done=recorder.events,
        retries=recorder.retries,
        failed=failed,
        backlog=None if backlog is None else max(0, backlog - failed),
        latency=recorder.latency_so_far() if running else None,
    )


EARLY_S = 0.005
"""A worker with a schedule gets ready this long before the start. Starting threads and the rest takes 1 to 2
ms, by which the first requests of an open loop would be late."""


class Worker(ABC):
    """One worker of a run; its group's role says which kind."""

    def __init__(self, settings: RunSettings, number: int, client: CollectorClient) -> None:
        self._settings = settings
        self._data = settings.data
        self._chance = settings.data.seed if settings.chance is None else settings.chance
        self._group = settings.group_of(number)
        self._load = self._group.load
        self._number = number
        self._by_second = settings.data.retention_s is not None
        self._client = client
        if settings.delivery is not None:
            from ..workloads.recording.delivery import obtain  # few runs need it, and zstd

            obtain(settings.delivery, client.open_recording)
        self._workload, self._module = build(settings)
        check_files(in_flight=self._module.options.in_flight(self._load))
        self._late_at_most_s: float | None = None
        self._stalls: StallWatch | None = None
        self._machine_at_start: Reading | None = None

    @abstractmethod
    def run(self) -> WorkerResult:
        """Do the work together with all other workers. Returns what was measured.

        Raises RunOver if the collector gave the run up, SimulatorError or Retryable if this worker did.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing left to do
        """Do what is left once the result is handed in. Raises as `run`."""

    def _await_start(self, prefilled: int = 0, early_s: float = 0.0) -> float:
        """Wait until `early_s` before the common start. Returns the start by this process's `perf_counter`.

        The collector is asked twice. It holds the first answer until all workers are ready, so the time to
        that answer says nothing about the network. The round trip of the second is known, and is the most by
        which the start can be late.
        """
        go = self._client.ready(Stage.RUN, prefilled)
        origin = time.perf_counter() + go.start_in_s
        sent = time.perf_counter()
        again = self._client.ready(Stage.RUN, prefilled)
        answered = time.perf_counter()
        if again.start_in_s > 0:
            origin = min(origin, answered + again.start_in_s)
            self._late_at_most_s = answered - sent
        self._machine_at_start = read_machine()
        self._stalls = StallWatch(self._number)
        time.sleep(max(0.0, origin - early_s - time.perf_counter()))
        return origin

    def _result(
        self, elapsed_s: float, figures: WorkerFigures | None = None, **more: Any
    ) -> WorkerResult:
        """The result; `figures`: what was measured; `more`: other fields."""
        begin = self._machine_at_start
        stalls = self._stalls.end(elapsed_s) if self._stalls is not None else []
        if figures is not None:
            figures.stalls = stalls
        return WorkerResult(
            worker=self._number,
            node=node_name(),
            machine=begin and measure_machine(node_name(), begin, read_machine()),
            elapsed_s=elapsed_s,
            late_at_most_s=self._late_at_most_s,
            figures=figures,
            **more,
        )

    def _check_on(self) -> None:
        """Raise RunOver if the collector has given the run up."""
        if self._client.failure:
            raise RunOver(self._client.failure)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause garbage collection: the database would be charged for its pauses.

    Neither the loop nor progress reports make reference cycles, so memory stays flat (benchmarks/memory.py,
    benchmarks/soak.py).
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
