"""A terminal: live progress, Ctrl-C by its key, and the terminal as it was before."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Iterator

import pytest

from ..screen import Screen
from .test_runs import check_run, rows
from .tool import Running, Tool, eventually

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
SLOW = (
    "insert", "-t", "blackhole", "-w", "2", "-r", "1", "--batch", "10", "--num-inserts", "1000",
    "--extra-option", "delay_ms=40",
)  # fmt: skip
ENDLESS = (*SLOW, "--num-inserts", "10000000")


class Terminal:
    """A pseudo-terminal and what has been shown on it."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        # Wide enough that all is on one line.
        self.resize(160)
        self.settings = termios.tcgetattr(self.slave)
        self._shown = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self._shown += data
        except OSError:
            return  # the other end is closed

    @property
    def shown(self) -> str:
        """All so far, escape sequences included."""
        return self._shown.decode(errors="replace")

    @property
    def text(self) -> str:
        """The same without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)

    def resize(self, columns: int) -> None:
        """Make its window `columns` wide; the system tells those who use it (SIGWINCH)."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Type on its keyboard."""
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """Close its window, which needs nobody to read any more."""
        self.close_slave()
        os.close(self._master)
        self._master = -1

    def close_slave(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def close(self) -> None:
        """Put it away."""
        self.close_slave()
        self._reader.join(10)
        if self._master >= 0:
            os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def start(tool: Tool, terminal: Terminal, *arguments: str) -> Running:
    """A command on that terminal."""
    return tool.start(*arguments, terminal=terminal.slave, env={"TERM": "xterm-256color"})


def check_sane(terminal: Terminal) -> None:
    """The cursor is shown again and the keys do what they did before."""
    shown = terminal.shown
    assert HIDE_CURSOR in shown
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR)
    assert termios.tcgetattr(terminal.slave) == terminal.settings


def test_live_progress(tool: Tool, terminal: Terminal) -> None:
    running = start(tool, terminal, *SLOW)
    assert running.wait().status == 0, terminal.text
    eventually(lambda: "Result: " in terminal.text, "the last line")
    text = terminal.text
    counts = re.findall(r"2 workers, run 1 of 1: running\W* ([\d,]+) of 2,000 events", text)
    assert len(set(counts)) >= 2, text
    assert re.search(r"running.* [\d,]+ events/s", text)
    assert re.search(r"running.* \d+ s left", text)
    assert re.search(r"2 workers, run 1 of 1: [\d,]+ inserts/s", text)
    assert rows(text, "Workers")[1][0] == "2"
    check_sane(terminal)


def test_a_resize_while_it_runs(tool: Tool, terminal: Terminal) -> None:
    """All is on lines that fit, and nothing but the outcome is left of it."""
    before, after = 100, 70
    terminal.resize(before)
    running = start(
        tool, terminal, "insert", "-t", "blackhole", "-w", "2", "-r", "2", "--batch", "10",
        "--rate", "2000", "--duration", "2.5s", "--warm-up", "0.7s",
        "--extra-option", "delay_ms=5",
    )  # fmt: skip
    eventually(lambda: "run 1 of 2: running" in terminal.text, "the run after its warm-up")
    at = len(terminal.shown)
    terminal.resize(after)
    assert running.wait().status == 0, terminal.text
    eventually(lambda: "Result: " in terminal.text, "the last line")
    assert "run 1 of 2: warming up" in terminal.text
    screen = Screen(before).feed(terminal.shown[:at])
    screen.resize(after, wraps_anew=True)
    screen.feed(terminal.shown[at:])
    outcomes = r"2 workers, run 1 of 2: [\d,]+ inserts/s\n2 workers, run 2 of 2: [\d,]+ inserts/s"
    table = r"\nInserts per second\n *Workers +.*\n +2 .*\n\d more columns?: --columns all, or results show\n"
    assert re.match(outcomes + table, "\n".join(screen.lines)), screen.lines
    # Each drawing begins by erasing the one before. The one under way may still be of the width before.
    drawn = terminal.shown[at:].split("\x1b[J")[2:-1]
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)
        for drawing in drawn
        for line in drawing.split("\n")
    ]
    assert max(map(len, lines)) <= after
    text = " ".join(line.strip() for line in lines)
    assert re.search(
        r"running \W+ [12] of 2.5 s \W*[\d,]+ events/s \W*p99 so far [\d.]+ ms \W*backlog \d+", text
    ), text
    assert re.search(r"\d s left \W*all 2 runs: \d s left", text), text
    check_sane(terminal)


def test_no_escape_sequences_in_a_pipe(tool: Tool) -> None:
    done = tool.run(*SLOW, "-r", 2, "--num-inserts", 400).ok()
    assert "\x1b" not in done.out + done.err
    lines = done.err.splitlines()
    for run in (1, 2):
        own = [line for line in lines if line.startswith(f"2 workers, run {run} of 2: ")]
        # Of further runs the outcome only.
        assert (run == 2) == (len(own) == 1)
        running = any(re.search(r": running, [\d,]+ of 800 events", line) for line in own)
        assert running == (run == 1)
        assert re.fullmatch(r".*: [\d,]+ inserts/s", own[-1])
    # A line for what is new, not for every look: a log would be full of them.
    assert len(lines) <= 12


def test_table_in_a_pipe_and_progress_on_a_terminal(tool: Tool, terminal: Terminal) -> None:
    """`run.py insert … > table.txt`: both can be read where they are."""
    with (tool.place / "table.txt").open("wb") as file:
        running = tool.start(*SLOW, out=file, err=terminal.slave)
        assert running.wait().status == 0
    table = (tool.place / "table.txt").read_text()
    assert "\x1b" not in table
    assert rows(table, "Workers")[1][0] == "2"
    assert "events/s" in terminal.text
    assert "Workers" not in terminal.text


def test_ctrl_c(tool: Tool, terminal: Terminal) -> None:
    running = start(tool, terminal, *SLOW, "-r", "2", "--num-inserts", "600")
    eventually(lambda: "run 2 of 2: running" in terminal.text, "the second run")
    terminal.type(b"\x03")
    assert running.wait().status == 130, terminal.text
    tool.check_nothing_runs(within_s=0.5)
    eventually(lambda: "ended by SIGINT: nothing is left running" in terminal.text, "the last line")
    assert "Traceback" not in terminal.text
    check_sane(terminal)
    (run,) = tool.runs()
    check_run(run, 600, 10)
    assert tool.result()["complete"] is False


def test_ctrl_c_twice(tool: Tool, terminal: Terminal) -> None:
    running = start(tool, terminal, *ENDLESS)
    eventually(lambda: "events/s" in terminal.text, "the first figures")
    terminal.type(b"\x03\x03")
    assert running.wait().status == 130, terminal.text
    assert "Traceback" not in terminal.text
    check_sane(terminal)


def test_terminal_is_closed(tool: Tool, terminal: Terminal) -> None:
    running = start(tool, terminal, *SLOW, "-r", "2", "--num-inserts", "600")
    eventually(lambda: "run 2 of 2: running" in terminal.text, "the second run")
    terminal.hang_up()
    assert running.wait().status == 129
    tool.check_nothing_runs(within_s=0.5)
    (run,) = tool.runs()
    check_run(run, 600, 10)


def test_no_terminal_is_needed_to_draw_for_one(tool: Tool, terminal: Terminal) -> None:
    """A dumb terminal (an editor's window) gets no sequences that it would show as text."""
    running = tool.start(*SLOW, terminal=terminal.slave, env={"TERM": "dumb"})
    assert running.wait().status == 0
    eventually(lambda: "Result: " in terminal.text, "the last line")
    assert "\x1b" not in terminal.shown
    assert HIDE_CURSOR not in terminal.shown
