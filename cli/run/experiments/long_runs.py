"""Results of long runs. An unfinished run is saved every minute, in case the command is killed. Timelines of
more than an hour coarsen, so that a day's result stays small. Pure.

What follows from timelines (backlog, saturation, outages, recovery) is computed second by second before they
coarsen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.contract import (
    GroupResult,
    GroupStatus,
    Mark,
    MinuteLatency,
    Phase,
    Role,
    RunResult,
    Status,
)

from ...plan.planning import PlannedRun

KEPT_EVERY_S = 60.0
"""Counted from the common start, then from the last time: at most this much of a run is lost."""

UNDER_WAY = "saved during the run: the figures are those of its first {:.0f} s"


@dataclass
class _Group:
    begun: tuple[float, int] | None = None
    """When the first answers after the warm-up arrived, and how much was done by then."""
    seen: tuple[float, int] = (0.0, 0)
    timeline: list[tuple[int, int]] = field(default_factory=list)
    """How much was done in each interval between two saves."""
    minutes: dict[int, MinuteLatency] = field(default_factory=dict)
    retries: int = 0


class UnfinishedRun:
    """A run under way, as the collector describes it."""

    def __init__(self, planned: PlannedRun) -> None:
        self._planned = planned
        self._groups: dict[Role, _Group] = {}
        self._marks: list[Mark] = []
        self._elapsed_s = 0.0
        self._kept_s = 0.0
        self._kept: dict[Role, int] = {}

    def follow(self, status: Status) -> bool:
        """Note the run's progress. Returns whether it is time to save it."""
        if status.phase is not Phase.RUN or status.elapsed_s is None:
            return False
        self._elapsed_s, self._marks = status.elapsed_s, status.marks
        for group in status.groups:
            self._note(self._groups.setdefault(group.role, _Group()), group, status)
        if self._elapsed_s < self._kept_s + KEPT_EVERY_S:
            return False
        for role, own in self._groups.items():
            own.timeline.append((int(self._kept_s), own.seen[1] - self._kept.get(role, 0)))
            self._kept[role] = own.seen[1]
        self._kept_s = self._elapsed_s // KEPT_EVERY_S * KEPT_EVERY_S
        return True

    def _note(self, own: _Group, group: GroupStatus, status: Status) -> None:
        own.seen = self._elapsed_s, group.done
        own.retries = group.retries
        if own.begun is None and self._elapsed_s >= status.warm_up_s:
            own.begun = own.seen
        if group.minute is not None:
            own.minutes[group.minute.begins_s] = group.minute

    def make_run(self, reason: str | None = None) -> RunResult | None:
        """What was seen so far; None in the first minute. `reason`: why there will be no more."""
        if not self._kept_s:
            return None
        reason = reason or UNDER_WAY.format(self._elapsed_s)
        return RunResult(
            run=self._planned.run,
            marks=list(self._marks),
            step_s=int(KEPT_EVERY_S),
            groups=[
                _make_group(
                    load.role, load.workers, load.warm_up_s, self._groups[load.role], reason
                )
                for load in self._planned.at_work
                if load.role in self._groups
            ],
        )


def _make_group(
    role: Role, workers: int, warm_up_s: float, own: _Group, reason: str
) -> GroupResult:
    began_s, before = own.begun or own.seen
    window_s, done = own.seen[0] - began_s, own.seen[1] - before
    return GroupResult(
        role=role,
        workers=workers,
        invalid_reasons=[reason],
        count=own.seen[1],
        window_s=window_s,
        rate_per_s=done / window_s if window_s > 0 else None,
        warm_up_s=warm_up_s,
        retries=own.retries,
        timeline=own.timeline,
        minutes=[minute for _, minute in sorted(own.minutes.items())],
    )


# --- timelines that coarsen

MOST_ENTRIES = 3_600
"""The most entries of a timeline: an hour of seconds."""
MOST_GAPS = 1_000
"""The most gaps or stalls of a group that are kept: the longest."""

_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60)
_LONGEST_S = 60
"""Longer steps are whole minutes."""

Timeline = Sequence[tuple[int, int]]


def coarsen_run(run: RunResult) -> None:
    """Coarsen all timelines of a run of more than an hour to the same step, and note that step in the run."""
    own = run.resources.timeline if run.resources else []
    ends = [second for second, _, _ in own[-1:]]
    for group in run.groups:
        ends += [second for second, _ in group.timeline[-1:]]
        ends += [second for second, _ in (group.offered.backlog[-1:] if group.offered else [])]
        if len(group.gaps) > MOST_GAPS:
            longest = sorted(group.gaps, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS]
            group.gaps = sorted(longest)
        if len(group.stalls) > MOST_GAPS:
            longest_stalls = sorted(group.stalls, key=lambda stall: -stall.length_s)[:MOST_GAPS]
            group.stalls = sorted(longest_stalls, key=lambda stall: stall.begins_s)
    step_s = choose_step_s(max(ends, default=-1) + 1)
    if step_s <= run.step_s:
        return
    run.step_s = step_s
    for group in run.groups:
        group.timeline = add_up_steps(group.timeline, step_s)
        if group.slowest_worker:
            group.slowest_worker.timeline = add_up_steps(group.slowest_worker.timeline, step_s)
        if group.offered:
            group.offered.backlog = keep_most(group.offered.backlog, step_s)
    if run.resources:
        # For each step, the mean of the CPU samples and the highest memory.
        steps: dict[int, list[tuple[float, int]]] = {}
        for second, cpus, memory in run.resources.timeline:
            steps.setdefault(second // step_s * step_s, []).append((cpus, memory))
        run.resources.timeline = [
            (begin, sum(cpus for cpus, _ in own) / len(own), max(memory for _, memory in own))
            for begin, own in sorted(steps.items())
        ]


def choose_step_s(length_s: int) -> int:
    """The shortest step at which a timeline of this length has no more than `MOST_ENTRIES`."""
    for step_s in _STEPS_S:
        if length_s <= MOST_ENTRIES * step_s:
            return step_s
    return -(-length_s // (MOST_ENTRIES * _LONGEST_S)) * _LONGEST_S


def add_up_steps(timeline: Iterable[tuple[int, int]], step_s: int) -> list[tuple[int, int]]:
    """(first second, sum) of each step."""
    sums: Counter[int] = Counter()
    for second, count in timeline:
        sums[second // step_s * step_s] += count
    return sorted(sums.items())


def keep_most(backlog: Timeline, step_s: int) -> list[tuple[int, int]]:
    """For each step, the second at whose end the backlog was largest."""
    most: dict[int, tuple[int, int]] = {}
    for entry in backlog:
        step = entry[0] // step_s
        if step not in most or entry[1] > most[step][1]:
            most[step] = entry
    return sorted(most.values())
