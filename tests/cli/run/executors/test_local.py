"""Runs by processes of this machine that are stopped, or can't be started: nobody waits for ever, and nothing
that can still be had is lost."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.run.executors import asking
from cli.run.executors.local import LocalExecutor
from cli.system.errors import RunFailed
from cli.system.processes import Interrupts
from simulator.contract import Phase, Report, RunSettings, Status

from ....e2e.tool import standard_error
from ....helpers import settings

STOPPED_S = 3.5
"""Longer than workers may be silent, and than the executor waits for one answer, in these runs."""
SILENCE_S = 2.0


class Local:
    """An executor, and the processes that it has started."""

    def __init__(self, executor: LocalExecutor, logs: Path) -> None:
        self._executor, self._logs = executor, logs

    @property
    def launcher(self) -> psutil.Process:
        launcher = self._executor._launcher
        assert launcher is not None
        return psutil.Process(launcher._process.pid)

    def find(self, name: str = "") -> list[psutil.Process]:
        """The processes whose logs are called so; all if none is named."""
        children = self.launcher.children()
        return [child for child in children if standard_error(child).name.startswith(name)]

    def make_run(
        self, run: RunSettings, when_running: Callable[[], object] = lambda: None
    ) -> Report:
        """Make it; `when_running` is called once, in a thread, when the workers are at work."""
        threads: list[threading.Thread] = []

        def watch(status: Status) -> None:
            if status.phase is Phase.RUN and not threads:
                threads.append(threading.Thread(target=when_running))
                threads[0].start()

        with self._executor.open_series([run], self._logs) as series:
            try:
                return series.run(run, 0, watch)
            finally:
                for thread in threads:
                    thread.join()


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    monkeypatch.setattr(asking, "_REPORT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(asking, "_STATUS_TIMEOUT_S", 0.5)
    monkeypatch.setattr("cli.run.executors.local._END_PATIENCE_S", 0.3)
    with LocalExecutor(Interrupts()) as executor:
        yield Local(executor, tmp_path)


def short_run(**changes: Any) -> RunSettings:
    values: dict[str, Any] = {
        "options": {"delay_ms": 5}, "events": 1, "duration_s": 1.0, "warm_up_s": 0.0,
        "silence_timeout_s": SILENCE_S,
    }  # fmt: skip
    return settings(**(values | changes))


def stop_for(processes: list[psutil.Process], seconds: float) -> None:
    """As SIGSTOP and SIGCONT do."""
    for process in processes:
        process.suspend()
    threading.Event().wait(seconds)
    for process in processes:
        process.resume()


@pytest.mark.parametrize("which", ["collector", ""], ids=["the-collector", "all"])
def test_a_run_whose_processes_were_stopped_is_not_lost(local: Local, which: str) -> None:
    report = local.make_run(short_run(), lambda: stop_for(local.find(which), STOPPED_S))
    assert report.failure is None
    assert report.run.writers is not None and report.run.writers.count


def test_a_collector_that_is_stopped_for_good_ends_the_run(local: Local) -> None:
    """When its report could no longer be had, were it at work."""

    def stop() -> None:
        (collector,) = local.find("collector")
        collector.suspend()

    with pytest.raises(RunFailed, match="the collector has been unreachable for"):
        local.make_run(short_run(linger_s=0.5), stop)
    assert not local.find()


def test_a_process_that_can_not_be_started_ends_the_run_and_not_the_launcher(local: Local) -> None:
    local.make_run(short_run())
    pid = local.launcher.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    with pytest.raises(RunFailed, match=r"can't start a collector: Too many open files"):
        local.make_run(short_run())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert local.make_run(short_run()).run.writers is not None


def test_a_run_that_lacks_files_says_which_process_needs_them(local: Local) -> None:
    """Where nobody has looked before: a pod, a step of a search."""
    pid = local.launcher.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (50, 50))
    with pytest.raises(RunFailed, match="worker with 40 requests in flight needs 72 open files"):
        local.make_run(short_run(in_flight=40))
    with pytest.raises(RunFailed, match="the collector of 10 workers needs 52 open files"):
        local.make_run(short_run(workers=10))
