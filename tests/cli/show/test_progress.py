"""Live progress, as it goes to a pipe and to a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from cli.run.live import LiveOptions, live_page, serve_live
from cli.show.progress import PlainDisplay, TerminalDisplay, draw_bar, lay_out, make_display
from cli.show.status import Forecast, describe_left, describe_phase, seconds_left
from cli.system.output import Block, follow_work, note
from cli.system.processes import Interrupts
from simulator.contract import GroupStatus, Load, Phase, Role, Status

from ...screen import Screen

PLAN = [Load()]


def group(
    role: Role = Role.WRITE, done: int = 5, total: int | None = 100, **more: Any
) -> GroupStatus:
    return GroupStatus(role=role, done=done, total=total, **more)


def status(phase: Phase, *groups: GroupStatus, **changes: Any) -> Status:
    return Status(**({"phase": phase, "age_s": 1.0, "groups": list(groups)} | changes))


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
    display = PlainDisplay(PLAN)
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


def test_lines_within_a_phase_come_at_intervals_that_grow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    display = PlainDisplay(PLAN)
    display.begin("run")
    output = []
    for second in range(1000):
        clock.now = 100.0 + second
        display.update(status(Phase.RUN, group(done=second)))
        output += [(second, line) for line in lines(capsys)]
    assert output == [
        (second, f"run: running, {second} of 100 events")
        for second in (0, 10, 30, 70, 150, 310, 610, 910)
    ]


def test_of_further_runs_only_the_outcome_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(PLAN * 20)
    for number in range(1, 21):
        display.begin(f"run {number}")
        for phase in (Phase.START, Phase.PREPARE, Phase.RUN, Phase.VERIFY):
            display.update(status(phase))
        if number == 20:
            display.update(status(Phase.RUN, group(), quiet_s=12.0))
        display.end("1,000 inserts/s")
    output = lines(capsys)
    assert output[4:23] == [f"run {number}: 1,000 inserts/s" for number in range(1, 20)]
    assert output[23].startswith("run 20: running, 5 of 100 events, no answer for 12 s")
    assert len(output) == 25


def test_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(PLAN)
    display.begin("run")
    readers = group(Role.READ, 1_000_000, 4_000_000, rate_per_s=12_345.6)
    display.update(status(Phase.RUN, readers))
    assert lines(capsys) == [
        "run: running, 1,000,000 of 4,000,000 queries, 12,346 queries/s, 243 s left"
    ]


def test_a_database_from_which_nothing_comes_back_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And again when something has come back, not only every ten seconds."""
    display = PlainDisplay(PLAN)
    display.begin("run")
    for quiet_s in (0.0, 9.9, 10.0, 11.0, 0.5):
        display.update(status(Phase.RUN, group(), quiet_s=quiet_s))
    output = lines(capsys)
    assert output[0] == output[2] == "run: running, 5 of 100 events"
    assert output[1].startswith("run: running, 5 of 100 events, no answer for 10 s, since ")
    assert len(output) == 3


def test_a_live_page_is_told_what_the_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with serve_live(LiveOptions(), "insert", "somewhere", Interrupts()):
        live = live_page.get()
        assert live is not None
        display = PlainDisplay([Load(duration_s=9)], live)
        display.begin("run 1 of 1")
        display.update(status(Phase.RUN, group(done=7, total=None), elapsed_s=4.0, duration_s=9))
        run = live.describe()["run"]
        assert (run["label"], run["phase"]) == ("run 1 of 1", "running")
        assert run["words"] == ["4 of 9 s", "5 s left"]
        display.end("7 inserts/s")
        assert live.describe()["runs"][0]["outcome"] == "7 inserts/s"
    capsys.readouterr()


def test_a_new_run_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(PLAN)
    for label in ("first", "second"):
        display.begin(label)
        display.update(status(Phase.PREPARE))
    assert lines(capsys) == ["first: preparing the database", "second: preparing the database"]


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_words(phase: Phase) -> None:
    assert describe_phase(status(phase))


def test_the_barrier_names_who_is_waited_for() -> None:
    assert describe_phase(status(Phase.BARRIER, waiting_for=[2, 5])) == "waiting for workers 2, 5"
    assert describe_phase(status(Phase.BARRIER, waiting_for=[0])) == "waiting for worker 0"
    assert describe_phase(status(Phase.RUN, waiting_for=[2, 5])) == "running"


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        (status(Phase.RUN, group(done=25, rate_per_s=5.0)), 15.0),
        (status(Phase.RUN, group(done=120, rate_per_s=5.0)), 0.0),
        (status(Phase.RUN, group(done=25, rate_per_s=0.0)), None),
        (status(Phase.RUN, group(done=25)), None),
        (status(Phase.RUN, group(total=None, rate_per_s=5.0)), None),
        (status(Phase.RUN), None),
        # The slower group ends last, and of each it must be known.
        (status(Phase.RUN, group(rate_per_s=95.0), group(Role.READ, 0, rate_per_s=5.0)), 20.0),
        (status(Phase.RUN, group(rate_per_s=95.0), group(Role.READ, 0)), None),
        # The clock, whatever the rate.
        (status(Phase.RUN, group(total=None), elapsed_s=12.5, duration_s=60), 47.5),
        (status(Phase.RUN, group(total=None), elapsed_s=61, duration_s=60), 0.0),
    ],
)
def test_seconds_left(known: Status, seconds: float | None) -> None:
    assert seconds_left(known) == seconds


OPEN = group(done=4_821_300, total=None, rate_per_s=48_213.4, p99_ms=12.34, backlog=1204, retries=3)


def test_a_run_that_the_clock_ends(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(PLAN)
    display.begin("run")
    clock = {"warm_up_s": 10, "duration_s": 60}
    display.update(status(Phase.RUN, group(total=None), elapsed_s=3.2, **clock))
    display.update(status(Phase.RUN, OPEN, elapsed_s=12.4, **clock))
    assert lines(capsys) == [
        "run: warming up, 3 of 60 s, 57 s left",
        "run: running, 12 of 60 s, 48,213 events/s, p99 so far 12 ms, backlog 1,204, 3 retries, 48 s left",
    ]


def test_two_groups_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(PLAN)
    display.begin("run")
    readers = group(Role.READ, 60, None, rate_per_s=4.96, p99_ms=0.523)
    display.update(status(Phase.RUN, OPEN, readers, elapsed_s=700, duration_s=3600))
    display.end("done")
    assert lines(capsys)[0] == (
        "run: running, 11:40 of 60:00 min, writers: 48,213 events/s, p99 so far 12 ms,"
        " backlog 1,204, 3 retries, readers: 5 queries/s, p99 so far 0.52 ms, 48 min left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (299.4, "299 s"),
        (300, "5 min"),
        (10_780, "3 h 00 min"),
        (98_000, "27 h 13 min"),
    ],
)
def test_a_span_has_a_unit_that_suits_it(seconds: float, text: str) -> None:
    progress = status(Phase.RUN, elapsed_s=0, duration_s=seconds)
    assert describe_left(progress, 9, 12) == [f"{text} left", "all 9 runs: 12 s left"]


LABEL = "16 workers, run 2 of 3"
LEFT = ["48 s left", "all 9 runs: 12 min left"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            60,
            [
                "16 workers, run 2 of 3: running ━──────── 12 of 60 s",
                "  48,213 events/s · p99 so far 12 ms · backlog 1,204",
                "  3 retries · 48 s left · all 9 runs: 12 min left",
            ],
        ),
        (
            70,
            [
                "16 workers, run 2 of 3: running ━━────────── 12 of 60 s",
                "  48,213 events/s · p99 so far 12 ms · backlog 1,204 · 3 retries",
                "  48 s left · all 9 runs: 12 min left",
            ],
        ),
        (
            100,
            [
                "16 workers, run 2 of 3: running ━━━━────────────────── 12 of 60 s · 48,213 events/s",
                "  p99 so far 12 ms · backlog 1,204 · 3 retries · 48 s left · all 9 runs: 12 min left",
            ],
        ),
    ],
)
def test_all_figures_stand_on_lines_that_fit(columns: int, expected: list[str]) -> None:
    progress = status(Phase.RUN, OPEN, elapsed_s=12.4, duration_s=60)
    assert lay_out(LABEL, progress, LEFT, columns, 24) == expected


def test_each_of_two_groups_has_lines_of_its_own() -> None:
    readers = group(Role.READ, 60, None, rate_per_s=4.9, p99_ms=250.3)
    progress = status(Phase.RUN, OPEN, readers, elapsed_s=12.4, duration_s=60, quiet_s=12)
    *first, quiet = lay_out(LABEL, progress, LEFT, 70, 24)
    assert first == [
        "16 workers, run 2 of 3: running ━━────────── 12 of 60 s · 48 s left",
        "  all 9 runs: 12 min left",
        "  writers: 48,213 events/s · p99 so far 12 ms · backlog 1,204",
        "  3 retries",
        "  readers: 4.9 queries/s · p99 so far 250 ms",
    ]
    assert quiet.startswith("  no answer for 12 s, since ")


@pytest.mark.parametrize("columns", [1, 8, 20, 40])
def test_nothing_is_wider_or_higher_than_the_terminal(columns: int) -> None:
    waiting = status(Phase.BARRIER, waiting_for=list(range(20)))
    running = status(Phase.RUN, OPEN, group(Role.READ), elapsed_s=12.4, duration_s=60, quiet_s=12)
    for progress in (waiting, running):
        laid = lay_out(LABEL, progress, LEFT, columns, 3)
        assert 1 <= len(laid) <= 3
        assert all(len(line) < max(2, columns) for line in laid)


def test_a_line_that_is_too_long_ends_between_words() -> None:
    waiting = status(Phase.BARRIER, waiting_for=list(range(20)))
    (line, *_) = lay_out(LABEL, waiting, [], 63, 24)
    assert line == "16 workers, run 2 of 3: waiting for workers 0, 1, 2, 3, 4, 5,…"


def test_quiet_prints_nothing_and_the_live_page_has_it_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serve_live(LiveOptions(), "insert", "somewhere", Interrupts()):
        live = live_page.get()
        assert live is not None
        capsys.readouterr()
        with make_display(PLAN, live, quiet=True) as display:
            display.begin("run")
            display.update(status(Phase.RUN, group()))
            display.end("7 inserts/s")
        assert lines(capsys) == []
        assert live.describe()["runs"][0]["outcome"] == "7 inserts/s"


def test_a_bar() -> None:
    assert [draw_bar(share, 4) for share in (0, 0.24, 0.26, 0.99, 1)] == [
        "────", "────", "━───", "━━━─", "━━━━",
    ]  # fmt: skip


# --- the time that all runs take ------------------------------------------------------------------


def test_all_runs_by_their_durations() -> None:
    forecast = Forecast([Load(duration_s=60)] * 3)
    forecast.begin(0)
    forecast.begin(1)  # The first of a series is announced twice.
    preparing = status(Phase.PREPARE, duration_s=60)
    # Two seconds till now, as with the runs to come.
    assert forecast.seconds_left(preparing, 2) == 60 + 2 * 62
    running = status(Phase.RUN, elapsed_s=10, duration_s=60)
    forecast.follow(running, 5)
    assert forecast.seconds_left(running, 15) == 50 + 2 * 65
    counting = status(Phase.VERIFY, duration_s=60)
    forecast.follow(counting, 65)
    forecast.end(67)
    forecast.begin(67)
    forecast.follow(preparing, 70)
    assert forecast.seconds_left(preparing, 70) == (5 - 3) + 60 + 2 + 67
    forecast.follow(running, 72)
    assert forecast.seconds_left(running, 82) == 50 + 2 + 67
    forecast.follow(counting, 132)
    assert forecast.seconds_left(counting, 133) == 1 + 67
    forecast.end(134)
    # Of the last one, what is left of itself says it all.
    forecast.begin(134)
    assert forecast.seconds_left(preparing, 135) is None


def test_all_runs_by_their_events() -> None:
    forecast = Forecast([Load(workers=n, events=1000) for n in (1, 2, 4)])
    forecast.begin(0)
    assert forecast.seconds_left(status(Phase.PREPARE), 1) is None
    slow = status(Phase.RUN, group(done=200, total=1000, rate_per_s=100.0), elapsed_s=2)
    forecast.follow(slow, 1)
    # 2 s + 8 s for 1,000 events, so 60 s for 6,000; and 1 s before each run.
    assert forecast.seconds_left(slow, 3) == pytest.approx(8 + 60 + 2)
    forecast.follow(status(Phase.VERIFY), 6)
    forecast.end(6)
    forecast.begin(6)
    # 1,000 took 5 s.
    assert forecast.seconds_left(status(Phase.PREPARE), 6.5) == pytest.approx(0.5 + 10 + 1 + 20)
    prefilling = status(Phase.PREFILL, group(Role.FILL, 100, 500, rate_per_s=100.0))
    assert forecast.seconds_left(prefilling, 30) == pytest.approx(4 + 10 + 1 + 20)


def test_a_run_too_short_to_be_seen_at_work() -> None:
    forecast = Forecast([Load()] * 3)
    forecast.begin(0)
    forecast.end(2)
    forecast.begin(2)
    assert forecast.seconds_left(status(Phase.PREPARE), 3) == pytest.approx(1 + 2)


def test_all_runs_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    display = PlainDisplay([Load(duration_s=60)] * 3)
    display.begin("run")
    clock.now += 1
    display.update(status(Phase.RUN, group(total=None), elapsed_s=0.5, duration_s=60))
    assert lines(capsys) == ["run: running, 0 of 60 s, 60 s left, all 3 runs: 182 s left"]


# --- a terminal -----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def attach(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest has a standard error of its own for each phase of a test."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def set_size(monkeypatch: pytest.MonkeyPatch, columns: int, rows: int = 24) -> None:
    monkeypatch.setattr("cli.show.progress.terminal_size", lambda: (columns, rows))


def test_a_terminal_gets_a_bar_and_keeps_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = attach(monkeypatch)
    set_size(monkeypatch, 160)
    with make_display(PLAN) as display:
        assert isinstance(display, TerminalDisplay)
        display.begin("run 1")
        progress = status(Phase.RUN, group(done=5, total=10, rate_per_s=2.5, retries=3))
        display.update(progress)
        bar = "━" * 12 + "─" * 12
        assert Screen(160).feed(terminal.getvalue()).lines == [
            f"run 1: running {bar} 5 of 10 events · 2.5 events/s · 3 retries · 2 s left"
        ]
        display.end("10 inserts/s")
        note("warning: a note meanwhile")
        display.begin("run 2")
        assert Screen(160).feed(terminal.getvalue()).lines == [
            "run 1: 10 inserts/s",
            "warning: a note meanwhile",
            "run 2: starting",
        ]
    note("after it")
    screen = Screen(160).feed(terminal.getvalue())
    assert screen.lines == ["run 1: 10 inserts/s", "warning: a note meanwhile", "after it"]
    assert screen.cursor_shown


@pytest.mark.parametrize("wraps_anew", [True, False])
@pytest.mark.parametrize("widths", [(160, 70), (70, 160), (100, 40, 90, 60)])
def test_a_resize_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, widths: Sequence[int], wraps_anew: bool
) -> None:
    """Whether the terminal wraps what it shows anew, or cuts it off."""
    terminal = attach(monkeypatch)
    screen = Screen(widths[0])
    progress = status(Phase.RUN, OPEN, group(Role.READ), elapsed_s=12.4, duration_s=60)

    def show() -> None:
        screen.feed(terminal.getvalue())
        terminal.seek(0)
        terminal.truncate()

    with make_display(PLAN * len(widths)) as display:
        for number, columns in enumerate(widths):
            screen.resize(columns, wraps_anew)
            set_size(monkeypatch, columns)
            display.begin(f"run {number}")
            display.update(progress)
            display.update(progress)
            show()
            ended, block = screen.lines[:number], screen.lines[number:]
            assert ended == [f"run {before}: 10 inserts/s" for before in range(number)]
            assert block[0].startswith(f"run {number}: running ━")
            assert block[-1] == "  readers: 5 of 100 queries"
            assert sum("48,213 events/s" in line for line in block) == 1
            display.end("10 inserts/s")
            display.update(progress)
            show()
    show()
    assert screen.lines == [f"run {number}: 10 inserts/s" for number in range(len(widths))]


def test_notes_stand_above_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attach(monkeypatch)
    with Block() as block:
        block.draw(["one", "two"])
        note("note\nof two lines")
        assert Screen(80).feed(terminal.getvalue()).lines == ["note", "of two lines", "one", "two"]
        block.draw(["three"])
        assert Screen(80).feed(terminal.getvalue()).lines == ["note", "of two lines", "three"]


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with make_display(PLAN) as display:
        assert isinstance(display, PlainDisplay)


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_a_terminal_that_can_not_draw_gets_lines(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    attach(monkeypatch)
    monkeypatch.setenv("TERM", kind)
    with make_display(PLAN) as display:
        assert isinstance(display, PlainDisplay)


def test_a_search_says_how_long_it_takes_at_most(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it expects now: fewer runs than it began with."""
    clock = Clock(monkeypatch)
    load = Load(duration_s=30.0)
    display = PlainDisplay([load] * 10)
    display.begin("step 1")
    display.update(status(Phase.RUN))
    clock.now += 30
    display.end("holds")
    display.expect([load, load, load], at_most=True)
    display.begin("step 2")
    clock.now += 10
    display.update(status(Phase.RUN, elapsed_s=10.0, duration_s=30.0))
    assert lines(capsys)[-1] == "step 2: running, 10 of 30 s, 20 s left, all: 80 s left at most"


def test_work_that_takes_long_is_told_in_a_line_that_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = attach(monkeypatch)
    with follow_work() as tell:
        tell("converting: 1%")
        tell("converting: 50%" + "." * 200)
        [line] = Screen(80).feed(terminal.getvalue()).lines
        assert line.startswith("converting: 50%...") and len(line) == 79
    screen = Screen(80).feed(terminal.getvalue())
    assert screen.lines == [] and screen.cursor_shown


def test_elsewhere_it_is_told_at_intervals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with follow_work() as tell:
        for second in range(60):
            clock.now = 100.0 + second
            tell(f"{second} s")
    assert lines(capsys) == ["10 s", "30 s"]
