"""The collector as a worker sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import httpx

from ..contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    TOO_EARLY,
    Failure,
    Go,
    Message,
    Progress,
    Ready,
    RunSettings,
    Stage,
    WorkerAnswers,
    WorkerResult,
)
from ..errors import SimulatorError
from ..logs import redact
from .measure import Recorder
from .schedule import compute_patiently

_log = logging.getLogger(__name__)

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

    def answers(self, answers: WorkerAnswers) -> None:
        """Hand in answers."""
        self._post("/answers", answers)

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
        compute_patiently()
        while not self._stop.wait(_PROGRESS_INTERVAL_S):
            self._client.progress(self._read())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# How far a worker is: what it tells the collector once a second.


def read_progress(
    worker: int,
    stage: Literal["prefill", "run"],
    recorder: Recorder,
    events_per_request: int = 1,
    most: int | None = None,
    failed: int = 0,
) -> Progress:
    """What the recorder knows by now. Called in a thread beside the one that sends requests, which can't
    go on meanwhile: takes some 20 µs.

    `most`: the events of the whole stage, if it is they that end it; `failed`: requests that were given up,
    which the recorder doesn't count as done.
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
        latency=recorder.latency_so_far() if running else (0, []),
    )
