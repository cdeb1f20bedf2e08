"""What is known of a run that is still under way, for a command that doesn't live to see its end. Pure."""

from __future__ import annotations

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

from ..plan import PlannedRun

KEPT_EVERY_S = 60.0
"""Since the common start and since the last time: so much of a run is lost at most."""

UNDER_WAY = "the run was under way when this was kept: its figures are those of its first {:.0f} s"


@dataclass
class _Group:
    begun: tuple[float, int] | None = None
    """When the first answers after the warm-up were seen, and how much was done then."""
    seen: tuple[float, int] = (0.0, 0)
    timeline: list[tuple[int, int]] = field(default_factory=list)
    """What was done in each interval after which it was kept."""
    minutes: dict[int, MinuteLatency] = field(default_factory=dict)
    retries: int = 0


class UnfinishedRun:
    """A run as the collector tells of it while it goes on."""

    def __init__(self, planned: PlannedRun) -> None:
        self._planned = planned
        self._groups: dict[Role, _Group] = {}
        self._marks: list[Mark] = []
        self._elapsed_s = 0.0
        self._kept_s = 0.0
        self._kept: dict[Role, int] = {}

    def follow(self, status: Status) -> bool:
        """Where the run is; whether it's time to keep that."""
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
        """What was seen so far; None in the first minute. `reason`: why there is no more."""
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
        minutes=[one for _, one in sorted(own.minutes.items())],
    )
