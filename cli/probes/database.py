"""What the database's processes on this machine used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from simulator.contract import Resources

from .background import MIN_COVERED

Root = tuple[int, float]
"""A listening process: its number and when it began, since numbers are used again."""


@dataclass(frozen=True)
class Counters:
    """Of a root and its children since they began: they rise as long as it lives."""

    cpu_s: float
    """That of children that have ended included."""
    read_bytes: int | None
    written_bytes: int | None
    """To and from disks; None if that can't be seen. Children that have ended take theirs along."""

    def scaled(self, share: float) -> Counters:
        """This share of all of them."""
        read, written = (
            None if size is None else round(share * size)
            for size in (self.read_bytes, self.written_bytes)
        )
        return Counters(share * self.cpu_s, read, written)


@dataclass(frozen=True)
class Use:
    """The database's processes at an instant."""

    at: float
    """By the wall clock, as seconds since 1970."""
    roots: Mapping[Root, Counters]
    names: tuple[str, ...]
    memory_bytes: int
    disks_busy_s: Mapping[str, float]
    """Disk of the machine -> how long it has been at work, whoever for."""


@dataclass(frozen=True)
class _Step:
    """What was used between two instants."""

    began: float
    ended: float
    cpu_s: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int
    disk_busy_s: Mapping[str, float]


def summarize_use(
    uses: Sequence[Use], began: float, ended: float, origin: float, cpus: int, events: int | None
) -> Resources | None:
    """What was used between two instants; None if too little is known of that time.

    `origin`: the common start, from which seconds count; `cpus`: the machine's; `events`: acknowledged
    within. What happened between two looks is shared out evenly over that time.
    """
    uses = _fill_in(uses)
    steps = [_compare(before, after) for before, after in pairwise(uses)]
    parts = [(step, share) for step in steps if (share := _share_within(step, began, ended)) > 0]
    covered_s = sum(share * (step.ended - step.began) for step, share in parts)
    if not parts or covered_s < MIN_COVERED * (ended - began):
        return None
    window_s = ended - began
    # What wasn't looked at, at the ends, went on as the rest.
    scale = window_s / covered_s
    cpu_s = scale * sum(share * step.cpu_s for step, share in parts)
    disks = {name for step, _ in parts for name in step.disk_busy_s}
    busy = [sum(share * step.disk_busy_s.get(name, 0.0) for step, share in parts) for name in disks]
    within = [use for use in uses if began <= use.at <= ended] or [uses[-1]]
    seen = all(own.written_bytes is not None for use in uses for own in use.roots.values())
    return Resources(
        source="this machine's processes",
        names=next((list(use.names) for use in reversed(uses) if use.names), []),
        cpu_s=cpu_s,
        cpus=cpus,
        cpu_share=cpu_s / (window_s * cpus),
        cpu_us_per_event=1e6 * cpu_s / events if events else None,
        memory_peak_bytes=max(use.memory_bytes for use in within),
        disk_read_bytes=_sum(parts, "read_bytes", scale) if seen else None,
        disk_written_bytes=_sum(parts, "written_bytes", scale) if seen else None,
        disk_busy_share=min(1.0, max(busy) / covered_s) if busy else None,
        restarts=_count_restarts(uses, began, ended),
        timeline=[
            (int(step.began - origin), step.cpu_s / (step.ended - step.began), step.memory_bytes)
            for step, _ in parts
            if step.began >= origin
        ],
    )


def _fill_in(uses: Sequence[Use]) -> list[Use]:
    """The same with roots that began between two of them and were found at a later one, as who listens is
    seldom looked for: until then they have used the same in each second since they began."""
    filled = list(uses)
    for late, found in enumerate(uses):
        for root in found.roots.keys() - filled[late - 1].roots.keys() if late else ():
            born, own = root[1], found.roots[root]
            if born < uses[0].at or born >= found.at:
                continue
            for place in range(late):
                share = (uses[place].at - born) / (found.at - born)
                if share > 0 and root not in filled[place].roots:
                    roots = {**filled[place].roots, root: own.scaled(share)}
                    filled[place] = replace(filled[place], roots=roots)
    return filled


def count_cpus(uses: Sequence[Use]) -> float | None:
    """How many CPUs were in use between the last two looks; None if there weren't two, or nothing to see."""
    last = uses[-2:]
    if len(last) < 2 or not last[1].roots or last[1].at <= last[0].at:
        return None
    step = _compare(*last)
    return step.cpu_s / (step.ended - step.began)


def _count_restarts(uses: Sequence[Use], began: float, ended: float) -> int:
    """Looks at which there were roots that came while it was looked: a server may come with several."""
    return sum(
        any(root[1] > uses[0].at for root in after.roots.keys() - before.roots.keys())
        for before, after in pairwise(uses)
        if before.at < ended and after.at > began
    )


def _compare(before: Use, after: Use) -> _Step:
    """What the roots that are there now have used; what those that ended did last isn't known."""

    def grown(name: str) -> float:
        return sum(_grow(before, after, root, name) for root in after.roots)

    return _Step(
        before.at,
        after.at,
        grown("cpu_s"),
        after.memory_bytes,
        int(grown("read_bytes")),
        int(grown("written_bytes")),
        {
            name: max(0.0, busy_s - before.disks_busy_s.get(name, busy_s))
            for name, busy_s in after.disks_busy_s.items()
        },
    )


def _grow(before: Use, after: Use, root: Root, name: str) -> float:
    """What a root has used between two looks: since it began, if that was meanwhile. Of one that was there
    before the first look and is found late, its part of that time."""
    now: float = getattr(after.roots[root], name) or 0.0
    if root in before.roots:
        was: float = getattr(before.roots[root], name) or 0.0
        return max(0.0, now - was)
    born = root[1]
    if born >= before.at:
        return now
    return now * (after.at - before.at) / (after.at - born)


def _share_within(step: _Step, began: float, ended: float) -> float:
    """The share of a step that lies between two instants."""
    length_s = step.ended - step.began
    if length_s <= 0:
        return 0.0
    return max(0.0, min(step.ended, ended) - max(step.began, began)) / length_s


def _sum(parts: Iterable[tuple[_Step, float]], name: str, scale: float) -> int:
    size: float = sum(share * getattr(step, name) for step, share in parts)
    return round(scale * size)
