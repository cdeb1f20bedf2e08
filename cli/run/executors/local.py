"""Collector and workers as processes on this machine, forked by a launcher (simulator/main.py)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from simulator.contract import Phase, Report, RunSettings, Status
from simulator.errors import SimulatorError
from simulator.machine import check_files

from ...system.errors import ConfigError, RunFailed
from ...system.installation import environment_for_processes
from ...system.output import explain
from ...system.processes import Interrupts, kill_group
from ..probes import BackgroundLoadSampler
from . import (
    POLL_S,
    Event,
    Executor,
    Failed,
    PartChanged,
    Problem,
    RunUnderWay,
    Series,
    Watch,
    await_report,
    raise_if_late,
)
from .asking import CollectorAsker

_END_PATIENCE_S = 3.0
_THREADS_PATIENCE_S = 1.0
# A worker that fails tells the collector before it ends. That report is awaited for this long.
_REASON_PATIENCE_S = 5.0


class LocalExecutor(Executor):
    """Keeps one launcher process (simulator/main.py) for all runs; it forks the others."""

    def __init__(self, interrupts: Interrupts, database_pids: Collection[int] = ()) -> None:
        self._interrupts = interrupts
        self._database_pids = database_pids
        self._launcher: Launcher | None = None

    def __enter__(self) -> LocalExecutor:
        try:
            with self._interrupts.shield():
                self._launcher = Launcher(self._interrupts)
        except BaseException:
            self.__exit__()  # a signal has arrived meanwhile
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._launcher is not None:
            with self._interrupts.shield():
                self._launcher.end()
                self._launcher = None

    def check_capacity(self, worker_counts: Sequence[int], in_flight: int) -> None:
        try:
            check_files(max(worker_counts, default=0), in_flight)
        except SimulatorError as error:
            raise ConfigError(str(error)) from error

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        assert self._launcher is not None
        yield _Series(self._launcher, self._interrupts, settings, logs, self._database_pids)


class _Series(Series):
    """Keeps nothing between runs: forking new processes costs next to nothing."""

    def __init__(
        self,
        launcher: Launcher,
        interrupts: Interrupts,
        settings: Sequence[RunSettings],
        logs: Path,
        database_pids: Collection[int],
    ) -> None:
        self._launcher = launcher
        self._interrupts = interrupts
        self._database_pids = database_pids
        self._numbers = {run.run_id: number for number, run in enumerate(settings, 1)}
        self._logs = logs

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        run = self._make_run(settings)
        sampler = BackgroundLoadSampler(
            settings.options.values(), run.list_processes, self._database_pids
        )

        def show(status: Status) -> None:
            watch(status.model_copy(update={"database": sampler.see_database()}))

        began = time.monotonic()
        deadline = began + timeout_s if timeout_s else None
        try:
            sampler.start()
            run.start(deadline)
            started = time.monotonic()
            report = await_report(run, settings.run_id, deadline, show).report
        finally:
            ended = time.monotonic()
            try:
                sampler.stop()  # while the collector is still connected
            finally:
                run.clean_up()
        report.run.phases_s[Phase.START] = (
            report.run.phases_s.get(Phase.START, 0.0) + started - began
        )
        sampler.complete(report)
        report.run.phases_s[Phase.CLEAN_UP] = time.monotonic() - ended
        return report

    def _make_run(self, settings: RunSettings) -> _Run:
        logs = self._logs / f"run-{self._numbers[settings.run_id]:02d}"
        return _Run(self._launcher, self._interrupts, settings, logs)


class _Run(RunUnderWay):
    """One run's processes."""

    def __init__(
        self,
        launcher: Launcher,
        interrupts: Interrupts,
        settings: RunSettings,
        logs: Path,
    ) -> None:
        super().__init__()
        launcher.follow(self.events)
        self._launcher = launcher
        self._interrupts = interrupts
        self._settings = settings
        self._dumped = settings.model_dump(mode="json")
        self._logs = logs
        self._collector = ""
        """Where the workers reach the collector."""
        self._names: dict[int, str] = {}
        """Running processes: pid -> name."""
        self._asker: CollectorAsker | None = None

    def list_processes(self) -> list[int]:
        """The running processes, the collector first."""
        return list(self._names)

    # --- start -----------------------------------------------------------------------------------

    def start(self, deadline: float | None) -> None:
        """Launch all processes. RunFailed as soon as one of them ends, or at the deadline."""
        self._collector = (
            f"http://127.0.0.1:{self._launch('collector', {'launch': 'collector'})['port']}"
        )
        self._asker = CollectorAsker(self._collector, self._settings, self.events)
        self.begin(self._asker.ask_for_report)
        self.begin(self._asker.ask_for_status)
        for number in range(self._settings.workers):
            self._launch(
                f"worker {number}",
                {"launch": "worker", "number": number, "collector": self._collector},
            )
            self.problems.raise_due()
            raise_if_late(self, deadline, None)

    def _launch(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        log = self._log_of(name)
        try:
            log.parent.mkdir(exist_ok=True)
            log.touch()  # here, where the error can say why it isn't writable
        except OSError as error:
            raise RunFailed(f"can't write {log}: {explain(error)}") from error
        with self._interrupts.shield():
            self._launcher.request(request | {"settings": self._dumped, "log": str(log.resolve())})
            while True:
                self._launcher.check()
                self._launcher.check_hurry()
                event = self._next_event(POLL_S)
                if isinstance(event, Failed):
                    raise RunFailed(event.reason)
                if isinstance(event, PartChanged):
                    if "refused" in event.news:
                        raise RunFailed(event.news["refused"])
                    if "launched" in event.news:
                        self._names[event.news["launched"]] = name
                        return dict(event.news)
                    self.take(event.news)

    def _next_event(self, within_s: float) -> Event | None:
        with suppress(Empty):
            return self.events.get(timeout=within_s)
        return None

    # --- what happens to the processes -----------------------------------------------------------

    def notice(self, news: dict[str, Any]) -> None:
        """Handle a line from the launcher: one of this run's processes may have ended."""
        if "exited" not in news:
            return
        name = self._names.pop(news["exited"], None)
        status: int = news["status"]
        if name == "collector" or (name and status < 0):
            self.problems.note(name, Problem(self._describe_end(name, status)))
        elif name and status > 0:
            # It has told the collector why, and that answer is on its way.
            problem = Problem(self._describe_end(name, status), _REASON_PATIENCE_S)
            self.problems.note(name, problem)

    def check(self) -> None:
        """RunFailed if the launcher is gone: without it, nobody would report the end of a process."""
        self._interrupts.insist()
        self._launcher.check()

    def describe_start(self) -> str:
        """The collector would name missing workers, so it must be the collector that doesn't answer."""
        return "the collector has not answered yet"

    def _describe_end(self, name: str, status: int) -> str:
        how = (
            f"was killed by {signal.Signals(-status).name}"
            if status < 0
            else f"ended with status {status}"
        )
        return f"{name} {how} during the run (log: {self._log_of(name)})"

    def _log_of(self, name: str) -> Path:
        return self._logs / f"{name.replace(' ', '-')}.log"

    # --- the end ---------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """End the remaining processes: by SIGTERM, then by SIGKILL, at once if the user is in a hurry."""
        with self._interrupts.shield():
            if self._asker is not None:
                self._asker.stop()
            # The launcher may be unreachable.
            with suppress(RunFailed):
                for number in (signal.SIGTERM, signal.SIGKILL):
                    self._end_processes(number)
            if self._names:
                self._launcher.kill()
            if self._asker is not None:
                self.end_threads(self._asker.stop, _THREADS_PATIENCE_S)

    def _end_processes(self, number: signal.Signals) -> None:
        """Send them a signal and wait until they end. RunFailed if the launcher can't be reached."""
        for pid in self._names:
            self._launcher.request({"signal": number, "pid": pid})
        until = time.monotonic() + _END_PATIENCE_S
        while self._names and time.monotonic() < until:
            self._launcher.check()
            self._launcher.check_hurry()
            event = self._next_event(0.1)
            if isinstance(event, PartChanged):
                self.take(event.news)
            elif self._launcher.gone.is_set():
                return


# --- the launcher ---------------------------------------------------------------------------------

# After some silence the launcher gets a ping. It answers at once, unless it is stopped. At first it has to
# load Python and numpy, perhaps from a slow disk.
_PING_AFTER_S = 1.0
_SILENCE_S = 8.0
_FIRST_SILENCE_S = 60.0
# A longer step of the clock means that this process itself did not run: Ctrl-Z, or a machine asleep.
_LONGEST_STEP_S = 1.0

_ENDED = "the local executor's launcher has ended unexpectedly"


class Launcher:
    """A process that has imported everything, and forks collectors and workers on request."""

    def __init__(self, interrupts: Interrupts) -> None:
        """Start it."""
        self._interrupts = interrupts
        self._events: SimpleQueue[Event] = SimpleQueue()
        self.gone = threading.Event()
        """Set once the launcher has ended."""
        self._lines = 0
        """How many lines it has written."""
        self._lines_seen = 0
        self._silent_s = 0.0
        self._checked_at = time.monotonic()
        self._pinged = False
        # BLAS would start a thread per core on import. Nothing here multiplies matrices, and threads and
        # forks don't mix.
        environment = environment_for_processes(os.environ)
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            # -P: nothing in the user's folder may shadow a module.
            [sys.executable, "-P", "-m", "simulator.main", "launcher"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            # A session of its own: Ctrl-C in the terminal is for the command line alone.
            env=environment, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._input = self._process.stdin.fileno()
        # A write to a stopped launcher must not block.
        os.set_blocking(self._input, False)
        threading.Thread(target=self._read, daemon=True).start()

    def follow(self, events: SimpleQueue[Event]) -> None:
        """Put its messages into this queue from now on. Each run has its own queue, so that no late message
        reaches the next run."""
        self._events = events

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            # A line may be cut off when it dies.
            with suppress(ValueError):
                for line in self._process.stdout:
                    message = json.loads(line)
                    self._lines += 1
                    if "pong" not in message:
                        self._events.put(PartChanged(message))
        finally:
            self.gone.set()
            self._events.put(Failed(_ENDED))

    def check(self) -> None:
        """RunFailed if it has shown no sign of life for too long. Call it twice a second."""
        now = time.monotonic()
        self._silent_s += min(now - self._checked_at, _LONGEST_STEP_S)
        self._checked_at = now
        if self._lines != self._lines_seen:
            self._lines_seen, self._silent_s, self._pinged = self._lines, 0.0, False
        if self._silent_s > (_SILENCE_S if self._lines else _FIRST_SILENCE_S):
            raise RunFailed(
                f"the local executor's launcher has not answered for {self._silent_s:.0f} s"
                " (is it stopped, or the machine overloaded?); run the command again"
            )
        if self._silent_s > _PING_AFTER_S and not self._pinged:
            self._pinged = True
            # A full pipe takes no ping, but then it still has to answer what fills it.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._input, b'{"ping": true}\n')

    def request(self, message: dict[str, Any]) -> None:
        """Send it a request. RunFailed if it is gone or takes nothing, or if the user is in a hurry."""
        if self.gone.is_set():
            raise RunFailed(_ENDED)
        unsent = memoryview(json.dumps(message).encode() + b"\n")
        while unsent:
            try:
                unsent = unsent[os.write(self._input, unsent) :]
            except BlockingIOError:
                self.check_hurry()
                self.check()
                select.select([], [self._input], [], _LONGEST_STEP_S / 2)
            except BrokenPipeError:
                raise RunFailed(_ENDED) from None

    def check_hurry(self) -> None:
        """RunFailed if the user doesn't want to wait."""
        if self._interrupts.hurry.is_set():
            raise RunFailed("interrupted while waiting for the local executor's launcher")

    def kill(self) -> None:
        """End it and all that it has started at once, even if stopped."""
        kill_group(self._process.pid)

    def end(self) -> None:
        """End it and all that it has started, cleanly if there is time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        until = time.monotonic() + _END_PATIENCE_S
        # A launcher that has never answered has started nothing.
        while self._lines and not self.gone.wait(0.1):
            if time.monotonic() > until or self._interrupts.hurry.is_set():
                break
        # A stopped child has not noticed that its launcher is gone.
        self.kill()
        self._process.wait()
