"""Compares two campaigns of the same plan: what changed for each candidate. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..system.errors import ConfigError
from .aspects import ASPECTS, Shown, measure
from .matrix import estimate_speed
from .sources import Sources
from .statistics import Ratio


@dataclass(frozen=True)
class Change:
    """A candidate's figure in two campaigns."""

    candidate: str
    step: str
    base: Shown
    own: Shown
    speed: Ratio | None
    """The ratio of the second to the first; above 1 is better."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.speed is None or self.speed.differs is None:
            return "unknown: needs 2 repetitions"
        if not self.speed.differs:
            return "no difference shown" if self.speed.alike else "undecided"
        return "better" if self.speed.value > 1 else "worse"


def compare_campaigns(base: Sources, own: Sources) -> list[Change]:
    """Each candidate's figures that both campaigns have, in the first one's order. The error of 5 % is split
    among the figures. ConfigError if they have none in common."""
    figures = [_collect(sources) for sources in (base, own)]
    common = [key for key in figures[0] if key in figures[1]]
    if not common:
        raise ConfigError(
            "these campaigns have no candidate with a figure of the same step in common: compare campaigns"
            " of the same file"
        )
    error = 0.05 / len(common)
    changes = []
    for candidate, step, aspect in common:
        before, after = (found[candidate, step, aspect] for found in figures)
        speed = estimate_speed(after.figures, before.figures, error)
        changes.append(Change(candidate, step, before, after, speed))
    return changes


def _collect(sources: Sources) -> dict[tuple[str, str, str], Shown]:
    """(candidate, step, key of an aspect) -> what its repetitions show."""
    found: dict[tuple[str, str, str], Shown] = {}
    jobs = dict.fromkeys((source.candidate, source.test) for source in sources.done)
    for job in jobs:
        done = [source.result for source in sources.done if (source.candidate, source.test) == job]
        failed = sum((source.candidate, source.test) == job for source in sources.failed)
        for aspect in ASPECTS:
            if (shown := measure(aspect, done, failed)) is not None:
                found[(*job, aspect.key)] = shown
    return found


def find_absent(base: Sources, own: Sources) -> Sequence[str]:
    """The candidates that only one of them has."""
    sides = [{source.candidate for source in (*side.done, *side.failed)} for side in (base, own)]
    return sorted(sides[0] ^ sides[1])
