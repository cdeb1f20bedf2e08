"""Collector and workers as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import httpx

from simulator.contract import RUN_HEADER, TOKEN_HEADER, Phase, Report, RunSettings, Status

from ..errors import RunFailed
from ..installation import environment_for_processes
from ..signals import Interrupts
from .base import Executor, Series, Watch

_POLL_S = 0.5
# A collector that hangs must not keep a deadline from being noticed.
_STATUS_PATIENCE_S = 2.0
_END_PATIENCE_S = 3.0
# A worker that fails tells the collector before it ends; the report of that is awaited this long.
_REASON_PATIENCE_S = 5.0

Event = tuple[str, Any]
"""("line", launcher's message) | ("report", Report) | ("failed", reason) | ("gone", None)"""


class LocalExecutor(Executor):
    """Keeps one launcher process (simulator/launcher.py) for all runs, which forks the others."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._launcher: subprocess.Popen[bytes] | None = None
        self._events: SimpleQueue[Event] = SimpleQueue()
        """Of the current run: each has its own, so that nothing late reaches the next."""

    def __enter__(self) -> LocalExecutor:
        # BLAS would start a thread per core on import; nothing here multiplies matrices, and
        # threads and forks don't mix.
        environment = environment_for_processes(os.environ)
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with self._interrupts.shielded():
            self._launcher = subprocess.Popen(
                # -P: nothing in the user's folder may stand in for a module.
                [sys.executable, "-P", "-m", "simulator.main", "launcher"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                # A session of its own: the terminal's Ctrl-C is for the command line alone.
                env=environment, start_new_session=True,
            )  # fmt: skip
            threading.Thread(target=self._read_launcher, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._launcher is None:
            return
        with self._interrupts.shielded():
            assert self._launcher.stdin is not None
            with suppress(BrokenPipeError):
                self._launcher.stdin.close()
            try:
                self._launcher.wait(_END_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._launcher.pid, signal.SIGKILL)
                self._launcher.wait()
            self._launcher = None

    def _read_launcher(self) -> None:
        assert self._launcher is not None and self._launcher.stdout is not None
        for line in self._launcher.stdout:
            self._events.put(("line", json.loads(line)))
        self._events.put(("gone", None))

    def _request(self, message: dict[str, Any]) -> None:
        assert self._launcher is not None and self._launcher.stdin is not None
        try:
            self._launcher.stdin.write(json.dumps(message).encode() + b"\n")
            self._launcher.stdin.flush()
        except BrokenPipeError:
            raise RunFailed("the local executor's launcher has ended unexpectedly") from None

    @contextmanager
    def series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        yield _Series(self, settings, logs)

    def run(self, settings: RunSettings, logs: Path, timeout_s: float, watch: Watch) -> Report:
        """One run."""
        self._events = SimpleQueue()
        run = _Run(self._events, self._request, self._interrupts, settings, logs)
        began = time.monotonic()
        try:
            run.start()
            report = run.watched(began + timeout_s if timeout_s else None, watch)
        finally:
            ended = time.monotonic()
            run.clean_up()
        report.phases_s[Phase.START] = report.phases_s.get(Phase.START, 0.0) + run.start_s
        report.phases_s[Phase.CLEAN_UP] = time.monotonic() - ended
        return report


class _Series(Series):
    """Nothing is kept between runs: forking new processes costs next to nothing."""

    def __init__(
        self, executor: LocalExecutor, settings: Sequence[RunSettings], logs: Path
    ) -> None:
        self._executor = executor
        self._numbers = {one.run_id: number for number, one in enumerate(settings, 1)}
        self._logs = logs

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        logs = self._logs / f"run-{self._numbers[settings.run_id]:02d}"
        return self._executor.run(settings, logs, timeout_s, watch)


class _Run:
    """One run's processes."""

    def __init__(
        self,
        events: SimpleQueue[Event],
        request: Callable[[dict[str, Any]], None],
        interrupts: Interrupts,
        settings: RunSettings,
        logs: Path,
    ) -> None:
        self._events = events
        self._request = request
        self._interrupts = interrupts
        self._settings = settings
        self._logs = logs
        self._names: dict[int, str] = {}
        """Running processes: pid -> name."""
        self._http: httpx.Client | None = None
        self.start_s = 0.0

    def start(self) -> None:
        began = time.monotonic()
        settings = self._settings.model_dump(mode="json")
        port = self._launch("collector", {"launch": "collector", "settings": settings})["port"]
        url = f"http://127.0.0.1:{port}"
        for number in range(self._settings.workers):
            self._launch(
                f"worker {number}",
                {"launch": "worker", "number": number, "collector": url, "settings": settings},
            )
        self.start_s = time.monotonic() - began
        self._http = httpx.Client(
            base_url=url,
            headers={
                TOKEN_HEADER: self._settings.token,
                RUN_HEADER: self._settings.run_id,
            },
            timeout=httpx.Timeout(60, connect=5),
            trust_env=False,
            verify=False,  # noqa: S501 - plain HTTP on loopback; spares loading certificates
        )
        threading.Thread(target=self._await_report, args=[self._http], daemon=True).start()

    def _launch(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        log = self._logs / f"{name.replace(' ', '-')}.log"
        try:
            log.parent.mkdir(exist_ok=True)
            log.touch()  # here, where it can be said why it can't be written
        except OSError as error:
            raise RunFailed(f"can't write {log}: {error.strerror}") from error
        with self._interrupts.shielded():
            self._request(request | {"log": str(log.resolve())})
            while True:
                kind, message = self._events.get()
                if kind == "gone":
                    raise RunFailed("the local executor's launcher has ended unexpectedly")
                if kind == "line" and "launched" in message:
                    self._names[message["launched"]] = name
                    return dict(message)
                self._note_exit(kind, message)

    def _note_exit(self, kind: str, message: Any) -> tuple[str, int] | None:
        """Take note if the event is the end of one of this run's processes: (name, status)."""
        if kind == "line" and "exited" in message:
            name = self._names.pop(message["exited"], None)
            if name is not None:
                return name, message["status"]
        return None

    def _await_report(self, http: httpx.Client) -> None:
        """Ask for the report, which the collector holds back until there is one."""
        while True:
            try:
                answer = http.get("/report")
            except (httpx.HTTPError, RuntimeError):
                return  # its end is reported by the launcher, or the client was closed
            if answer.status_code == httpx.codes.OK:
                self._events.put(("report", Report.model_validate_json(answer.content)))
                return
            if answer.status_code != httpx.codes.ACCEPTED:
                self._events.put(("failed", answer.text))
                return

    def watched(self, deadline: float | None, watch: Watch) -> Report:
        """Wait for the report; RunFailed if there will be none."""
        status = None
        reason: str | None = None
        while True:
            timeout = _POLL_S
            if deadline is not None:
                timeout = max(0.0, min(timeout, deadline - time.monotonic()))
            try:
                kind, message = self._events.get(timeout=timeout)
            except Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    raise RunFailed(reason or _timeout_text(status)) from None
                status = self._status() or status
                if status:
                    watch(status)
                continue
            if kind == "report":
                return message  # type: ignore[no-any-return]
            if kind == "failed":
                raise RunFailed(message)
            if kind == "gone":
                raise RunFailed("the local executor's launcher has ended unexpectedly")
            ended = self._note_exit(kind, message)
            if ended and (ended[0] == "collector" or ended[1] < 0):
                raise RunFailed(self._ended_text(*ended))
            if ended and ended[1] > 0:
                # It has told the collector why: that answer is on its way.
                reason = self._ended_text(*ended)
                patience = time.monotonic() + _REASON_PATIENCE_S
                deadline = min(deadline or patience, patience)

    def _status(self) -> Status | None:
        assert self._http is not None
        try:
            answer = self._http.get("/status", timeout=_STATUS_PATIENCE_S)
            return Status.model_validate_json(answer.content)
        except httpx.HTTPError:
            return None

    def _ended_text(self, name: str, status: int) -> str:
        how = (
            f"was killed by {signal.Signals(-status).name}"
            if status < 0
            else f"ended with status {status}"
        )
        return f"{name} {how} in mid-run (log: {self._logs / name.replace(' ', '-')}.log)"

    def clean_up(self) -> None:
        """End what is left: by SIGTERM, soon after or in a hurry by SIGKILL."""
        with self._interrupts.shielded():
            if self._http is not None:
                self._http.close()
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    for pid in self._names:
                        self._request({"signal": number, "pid": pid})
                except RunFailed:
                    return  # the launcher is gone, and its children end with it
                until = time.monotonic() + _END_PATIENCE_S
                while self._names and time.monotonic() < until:
                    if self._interrupts.hurry.is_set() and number == signal.SIGTERM:
                        break
                    with suppress(Empty):
                        event = self._events.get(timeout=0.1)
                        if event[0] == "gone":
                            return
                        self._note_exit(*event)


def _timeout_text(status: Status | None) -> str:
    text = "the run was not done when --timeout was reached"
    if status is None:
        return text
    text += f": phase {status.phase}"
    if status.total:
        text += f", {status.done} of {status.total} done"
    if status.phase is Phase.BARRIER and status.waiting_for:
        text += f", waiting for workers {', '.join(map(str, status.waiting_for))}"
    return text
