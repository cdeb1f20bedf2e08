"""The launcher as the local executor sees it: answering, stopped, gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from cli.run.executors import local
from cli.run.executors.local import Launcher
from cli.system.errors import RunFailed
from cli.system.processes import Interrupts

STEP_S, SILENCE_S = 0.2, 1.0


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    """One that has answered already, and has little time for the next answers."""
    monkeypatch.setattr(local, "_PING_AFTER_S", 0.1)
    monkeypatch.setattr(local, "_LONGEST_STEP_S", STEP_S)
    started = Launcher(Interrupts())
    try:
        check_for(started, 60, lambda: started._lines > 0)
        monkeypatch.setattr(local, "_SILENCE_S", SILENCE_S)
        yield started
    finally:
        started.end()


def check_for(launcher: Launcher, seconds: float, until: Callable[[], bool]) -> None:
    """Check as a run does, until something is true or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not until():
        launcher.check()
        time.sleep(STEP_S / 4)


def test_one_that_answers_is_never_silent(launcher: Launcher) -> None:
    check_for(launcher, SILENCE_S * 2, lambda: False)


def test_one_that_is_stopped_is_noticed(launcher: Launcher) -> None:
    process = psutil.Process(launcher._process.pid)
    process.suspend()
    with pytest.raises(RunFailed, match="launcher has not answered for"):
        check_for(launcher, SILENCE_S * 5, lambda: False)
    # A full pipe to it doesn't block who writes to it either.
    with pytest.raises(RunFailed, match="launcher has not answered for"):
        launcher.request({"launch": "worker", "settings": "x" * 2_000_000})
    process.resume()


def test_a_user_in_a_hurry_does_not_wait_for_one_that_is_stopped(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_END_PATIENCE_S", 600.0)
    psutil.Process(launcher._process.pid).suspend()
    launcher._interrupts.hurry.set()
    with pytest.raises(RunFailed, match="interrupted"):
        launcher.request({"launch": "worker", "settings": "x" * 2_000_000})
    began = time.monotonic()
    launcher.end()
    assert time.monotonic() - began < 60


def test_the_time_in_which_the_command_itself_was_stopped_does_not_count(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three steps of the clock are less than silence, by what of them counts.
    monkeypatch.setattr(local, "_SILENCE_S", 0.45)
    monkeypatch.setattr(local, "_LONGEST_STEP_S", 0.1)
    for _ in range(3):
        time.sleep(0.5)
        launcher.check()


def test_one_that_is_gone_is_said_to_be(launcher: Launcher) -> None:
    psutil.Process(launcher._process.pid).kill()
    assert launcher.gone.wait(60)
    assert launcher.gone.is_set()
    with pytest.raises(RunFailed, match="ended unexpectedly"):
        launcher.request({"ping": True})
