"""Live progress, as it goes to a pipe."""

from __future__ import annotations

import io
from typing import Any

import pytest

from cli.show.progress import (
    PlainDisplay,
    TerminalDisplay,
    make_display,
    phase_text,
    seconds_left,
)
from simulator.contract import Phase, Status


def status(phase: Phase, **changes: Any) -> Status:
    return Status(**({"phase": phase, "age_s": 1.0} | changes))


class Clock:
    """`time.monotonic` under control."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("cli.show.progress.time.monotonic", lambda: self.now)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said since the last time; nothing of it on standard output, which is for results."""
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_line_for_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay("events") as display:
        display.begin("4 workers, run 1 of 3")
        for phase in (Phase.START, Phase.PREPARE, Phase.PREPARE, Phase.VERIFY, Phase.VERIFY):
            display.update(status(phase))
        display.end("1,000 inserts/s")
    assert lines(capsys) == [
        "4 workers, run 1 of 3: starting",
        "4 workers, run 1 of 3: preparing the database",
        "4 workers, run 1 of 3: counting",
        "4 workers, run 1 of 3: 1,000 inserts/s",
    ]


def test_a_line_every_ten_seconds_within_a_phase(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    display = PlainDisplay("events")
    display.begin("run")
    told = []
    for second in range(31):
        clock.now = 100.0 + second
        display.update(status(Phase.RUN, done=second, total=100))
        told += [(second, line) for line in lines(capsys)]
    assert told == [(second, f"run: running, {second} of 100 events") for second in (0, 10, 20, 30)]


def test_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay("queries")
    display.begin("run")
    display.update(status(Phase.RUN, done=1_000_000, total=4_000_000, rate_per_s=12_345.6))
    assert lines(capsys) == [
        "run: running, 1,000,000 of 4,000,000 queries, 12,346 queries/s, 243 s left"
    ]


def test_a_database_from_which_nothing_comes_back_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And again when something has come back, not only every ten seconds."""
    display = PlainDisplay("events")
    display.begin("run")
    for quiet_s in (0.0, 9.9, 10.0, 11.0, 0.5):
        display.update(status(Phase.RUN, done=5, total=100, quiet_s=quiet_s))
    said = lines(capsys)
    assert said[0] == said[2] == "run: running, 5 of 100 events"
    assert said[1].startswith(
        "run: running, 5 of 100 events, nothing has come back for 10 s, since "
    )
    assert len(said) == 3


def test_a_new_run_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay("events")
    for label in ("first", "second"):
        display.begin(label)
        display.update(status(Phase.PREPARE))
    assert lines(capsys) == ["first: preparing the database", "second: preparing the database"]


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_words(phase: Phase) -> None:
    assert phase_text(status(phase))


def test_the_barrier_names_who_is_waited_for() -> None:
    assert phase_text(status(Phase.BARRIER, waiting_for=[2, 5])) == "waiting for workers 2, 5"
    assert phase_text(status(Phase.RUN, waiting_for=[2, 5])) == "running"


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"done": 25, "total": 100, "rate_per_s": 5.0}, 15.0),
        ({"done": 120, "total": 100, "rate_per_s": 5.0}, 0.0),
        ({"done": 25, "total": 100, "rate_per_s": 0.0}, None),
        ({"done": 25, "total": 100}, None),
        ({"done": 25, "rate_per_s": 5.0}, None),
    ],
)
def test_seconds_left(changes: dict[str, Any], seconds: float | None) -> None:
    assert seconds_left(status(Phase.RUN, **changes)) == seconds


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_keeps_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with make_display("events") as display:
        assert isinstance(display, TerminalDisplay)
        display.begin("run 1")
        display.update(status(Phase.RUN, done=5, total=10, rate_per_s=2.5, retries=3))
        display._progress.refresh()
        display.end("10 [inserts/s]")
    shown = terminal.getvalue()
    assert "5 of 10 events · 2 events/s · 2 s left · 3 retries" in shown
    # Outcomes are no markup.
    assert "run 1: 10 [inserts/s]" in shown


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(make_display("events"), PlainDisplay)
