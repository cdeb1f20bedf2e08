"""What a turn stores before measuring: the history, up to a smaller and a larger fill level. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from simulator.modules.options import PREFILL_BATCH
from simulator.units import format_duration

from ...results.loads import Question
from ...results.scaling import LEAST_RATIO
from ...system.errors import ConfigError

SMALL = 0.1
"""The smaller level as a share of the larger, unless a query covers more."""
LENGTHS = ("duration", "warm-up", "batch", "num-inserts")
"""Options for the amount of a filling step, which ignores those for all steps."""


@dataclass(frozen=True)
class Level:
    """A fill level on which the load is measured."""

    suffix: str
    """The suffix of its steps' names."""
    options: dict[str, Any]
    """Options of the load on it: what is inserted before."""
    fill: dict[str, Any] | None = None
    """Options of the insert that fills it, if by a history."""


@dataclass(frozen=True)
class Filling:
    """How the history is stored."""

    question: Question
    interval_s: float
    """The interval between a device's events."""
    recorded: bool
    """Whether the workload is a recording, whose history has the recorded intervals."""
    begins_now: bool
    """Whether the workload's events start over in each step."""

    def list_levels(self) -> Iterator[Level]:
        """The fill levels, in order: two if full retention is known. ConfigError if a history is
        impossible."""
        history = self.question.needed.history
        if history is None:
            yield Level("", {})
            return
        if history.time is not None and self.begins_now:
            raise ConfigError(
                "requirements.history: a workload that begins now is inserted again in each step: give a"
                " number of events, as in history: {events: 10M}"
            )
        parts = [1.0] if self.question.kept is None else [self._find_small(), 1.0]
        for place, part in enumerate(parts):
            before = parts[place - 1] if place else 0.0
            suffix = "" if part == 1.0 else "-small"
            added = {"clean": False} if place else {}
            if history.span is not None and history.every is not None:
                span_s = max(history.every, part * history.span)
                yield Level(suffix, _write_history(span_s, history.every))
            elif history.time is not None:
                length = f"{max(1, round((part - before) * history.time))}s"
                fill = {"batch": PREFILL_BATCH, "duration": length, "warm-up": "0s", "runs": 1}
                yield Level(suffix, self.options(), {**fill, **self._anchor, **added})
            elif self.begins_now:
                yield Level(suffix, {"prefill": ceil(part * self.question.history)})
            else:
                events = ceil((part - before) * self.question.history)
                yield Level(suffix, {"prefill": events, **self._anchor, **added})

    def options(self, number: str = "prefill") -> dict[str, Any]:
        """The options of a step after the loads. `number`: its option for a number of events."""
        history = self.question.needed.history
        if history is None:
            return {}
        if history.span is not None and history.every is not None:
            clean = {} if self.begins_now else {"clean": False}
            return _write_history(history.span, history.every) | clean
        if self.begins_now:
            return {number: self.question.history}
        return {**self._anchor, "clean": False}

    @property
    def _anchor(self) -> dict[str, Any]:
        """A history of one event per device, which tells later steps what earlier ones stored."""
        if self.recorded:
            return {"prefill-span": f"{ceil(self.interval_s)}s"}
        return _write_history(self.interval_s, self.interval_s)

    def _find_small(self) -> float:
        """The smaller level as a share: a tenth, or as much as a query covers, since less would distort the
        growth."""
        history, windows_s = self.question.needed.history, self.question.windows_s
        longest_s = max(
            (windows_s.get(name, 0.0) for name in self.question.needed.queries), default=0.0
        )
        span_s = self.question.history / self.question.rate_per_s
        if history is not None and history.span is not None:
            span_s = history.span
        covering = longest_s / span_s if span_s else 0.0
        return max(SMALL, covering) if covering <= 1 / LEAST_RATIO else SMALL


def _write_history(span_s: float, every_s: float) -> dict[str, Any]:
    return {"prefill-span": format_duration(span_s), "prefill-every": format_duration(every_s)}
