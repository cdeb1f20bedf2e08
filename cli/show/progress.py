"""Live progress on standard error: lines that are redrawn on a terminal, plain lines otherwise. The command's
live page, if any, shows the same."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from simulator.contract import QUIET_S, Load, Phase, Status

from ..system.output import Block, Pace, can_draw, note, terminal_size
from .status import (
    Forecast,
    describe_extent,
    describe_groups,
    describe_left,
    describe_phase,
    describe_quiet,
    find_share,
    is_warming_up,
)

_LONGEST_BAR, _SHORTEST_BAR = 24, 8
_BAR = "━─"


class Follower(Protocol):
    """Someone else who follows the progress of runs: the command's live page."""

    def begin_run(self, label: str) -> None: ...

    def follow(self, status: Status, left: list[str]) -> None: ...

    def end_run(self, outcome: str) -> None: ...


class Display(ABC):
    """Shows the runs of a command."""

    def __init__(
        self, plan: Sequence[Load], live: Follower | None = None, fills_once: bool = False
    ) -> None:
        """`plan`: the load of each run, which says how long it lasts; `fills_once`: as for `Forecast`."""
        self._forecast = Forecast(plan, fills_once)
        self._live = live
        self._label = ""
        self._at_most = False

    def expect(self, loads: Sequence[Load], at_most: bool = False) -> None:
        """Replace the remaining runs of the plan, before the next one begins. `at_most`: not all may be
        needed."""
        self._forecast.expect(loads)
        self._at_most = at_most

    def begin(self, label: str) -> None:
        """A run begins, as in `4 workers, run 2 of 3`. May be called again until it has a status."""
        self._forecast.begin(time.monotonic())
        self._label = label
        if self._live is not None:
            self._live.begin_run(label)

    def update(self, status: Status) -> None:
        """Show where the run is."""
        now = time.monotonic()
        self._forecast.follow(status, now)
        all_left_s = self._forecast.seconds_left(status, now)
        left = describe_left(status, self._forecast.runs, all_left_s, self._at_most)
        self._show(status, left)
        if self._live is not None:
            self._live.follow(status, left)

    def end(self, outcome: str) -> None:
        """The run ends; its outcome, in a few words, stays visible."""
        self._forecast.end(time.monotonic())
        self._keep(f"{self._label}: {outcome}")
        if self._live is not None:
            self._live.end_run(outcome)

    def _keep(self, line: str) -> None:
        """Print a line that stays."""
        note(line)

    @abstractmethod
    def _show(self, status: Status, left: list[str]) -> None:
        """Show where the run is, and the time left if known."""


@contextmanager
def make_display(
    plan: Sequence[Load],
    live: Follower | None = None,
    fills_once: bool = False,
    quiet: bool = False,
) -> Iterator[Display]:
    """A display for a terminal or a pipe. `plan`: a load for each run; `fills_once`: as for `Forecast`;
    `quiet`: print nothing."""
    if quiet:
        yield QuietDisplay(plan, live, fills_once)
    elif can_draw():
        with Block() as block:
            yield TerminalDisplay(plan, block, live, fills_once)
    else:
        yield PlainDisplay(plan, live, fills_once)


class QuietDisplay(Display):
    """Prints nothing, but keeps the live page up to date."""

    def _keep(self, line: str) -> None:
        pass

    def _show(self, status: Status, left: list[str]) -> None:
        pass


class PlainDisplay(Display):
    """A line for each run that has ended, and for each phase of the first one; in between, lines at growing
    intervals."""

    def __init__(
        self, plan: Sequence[Load], live: Follower | None = None, fills_once: bool = False
    ) -> None:
        super().__init__(plan, live, fills_once)
        self._shown: tuple[Phase | None, bool, bool] | None = None
        self._pace = Pace()
        self._is_first = True

    def begin(self, label: str) -> None:
        super().begin(label)
        self._shown = None if self._is_first else (None, False, False)
        self._pace.restart()

    def end(self, outcome: str) -> None:
        super().end(outcome)
        self._is_first = False

    def _show(self, status: Status, left: list[str]) -> None:
        is_quiet = status.quiet_s >= QUIET_S
        shown: tuple[Phase | None, bool, bool] = None, False, is_quiet
        if self._is_first:
            shown = status.phase, is_warming_up(status), is_quiet
        if shown != self._shown:
            self._pace.restart()
        elif not self._pace.is_due():
            return
        self._shown = shown
        figures = [part for group in describe_groups(status) for part in group]
        parts = [describe_phase(status), *describe_extent(status), *figures, *left]
        note(f"{self._label}: {', '.join(parts + describe_quiet(status))}")


class TerminalDisplay(Display):
    """A few lines that follow the current run; a line stays for each run that ended."""

    def __init__(
        self,
        plan: Sequence[Load],
        block: Block,
        live: Follower | None = None,
        fills_once: bool = False,
    ) -> None:
        super().__init__(plan, live, fills_once)
        self._block = block

    def begin(self, label: str) -> None:
        super().begin(label)
        self.update(Status(phase=Phase.START, age_s=0.0))

    def _show(self, status: Status, left: list[str]) -> None:
        self._block.draw(lay_out(self._label, status, left, *terminal_size()))


def lay_out(label: str, status: Status, left: list[str], columns: int, rows: int) -> list[str]:
    """The lines, cut to fit a terminal of this size."""
    # A character in the last column makes some terminals wrap.
    width = max(1, columns - 1)
    head = f"{label}: {describe_phase(status)}"
    share = find_share(status)
    if share is not None:
        longest = min(_LONGEST_BAR, max(_SHORTEST_BAR, (width - len(head)) // 3))
        head += " " + draw_bar(share, longest)
    extent, groups = describe_extent(status), describe_groups(status)
    if len(groups) == 1:
        paragraphs = [[head, *extent, *groups[0], *left]]
    else:
        paragraphs = [[head, *extent, *left], *groups]
    paragraphs.append(describe_quiet(status))
    lines: list[str] = []
    for paragraph in filter(None, paragraphs):
        lines += _fill(paragraph, "  " if lines else "", width)
    return lines[:rows]


def _fill(parts: Sequence[str], indent: str, width: int) -> list[str]:
    """Fill lines with as many parts as fit; a part longer than a line is cut."""
    lines = [indent + parts[0]]
    for part in parts[1:]:
        # The bar ends what is before it.
        longer = lines[-1] + (" " if lines[-1].endswith(tuple(_BAR)) else " · ") + part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append("  " + part)
    return [line if len(line) <= width else _cut(line, width) for line in lines]


def _cut(line: str, width: int) -> str:
    """As many whole words as fit before `…`, or the beginning of a first word that is too long."""
    words = line[:width].rpartition(" ")[0].rstrip(" ·")
    return f"{words or line[: width - 1]}…"


def draw_bar(share: float, width: int) -> str:
    """A bar, filled by `share`."""
    filled = int(share * width)
    return _BAR[0] * filled + _BAR[1] * (width - filled)
