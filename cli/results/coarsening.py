"""The timelines of a long run in steps of several seconds, so that a day's result stays small. Pure.

What is found out by them (backlog, saturation, outages, recovery) is found out second by second before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from simulator.contract import GroupResult, Resources, RunResult

MOST_ENTRIES = 3_600
"""Of a timeline: an hour of seconds."""
MOST_GAPS = 1_000
"""The longest stay."""

_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60)
_LONGEST_S = 60
"""From here on by whole minutes."""

Timeline = Sequence[tuple[int, int]]


def coarsen_run(run: RunResult) -> None:
    """Coarsen all timelines of a run of more than an hour to the same step, which it then says."""
    own = run.resources.timeline if run.resources else []
    ends = [second for second, _, _ in own[-1:]]
    for group in run.groups:
        ends += [second for second, _ in group.timeline[-1:]]
        ends += [second for second, _ in (group.offered.backlog[-1:] if group.offered else [])]
        group.gaps = _keep_longest(group.gaps)
    step_s = choose_step_s(max(ends, default=-1) + 1)
    if step_s <= run.step_s:
        return
    run.step_s = step_s
    for group in run.groups:
        _coarsen_group(group, step_s)
    if run.resources:
        _coarsen_use(run.resources, step_s)


def choose_step_s(length_s: int) -> int:
    """The shortest step by which a timeline of this length has no more than `MOST_ENTRIES`."""
    for step_s in _STEPS_S:
        if length_s <= MOST_ENTRIES * step_s:
            return step_s
    return -(-length_s // (MOST_ENTRIES * _LONGEST_S)) * _LONGEST_S


def _coarsen_group(group: GroupResult, step_s: int) -> None:
    group.timeline = add_up_steps(group.timeline, step_s)
    if group.slowest_worker:
        group.slowest_worker.timeline = add_up_steps(group.slowest_worker.timeline, step_s)
    if group.offered:
        group.offered.backlog = keep_most(group.offered.backlog, step_s)


def add_up_steps(timeline: Iterable[tuple[int, int]], step_s: int) -> list[tuple[int, int]]:
    """(first second, sum) of each step."""
    sums: Counter[int] = Counter()
    for second, count in timeline:
        sums[second // step_s * step_s] += count
    return sorted(sums.items())


def keep_most(backlog: Timeline, step_s: int) -> list[tuple[int, int]]:
    """Of each step the second at whose end the most was waiting."""
    most: dict[int, tuple[int, int]] = {}
    for entry in backlog:
        step = entry[0] // step_s
        if step not in most or entry[1] > most[step][1]:
            most[step] = entry
    return sorted(most.values())


def _coarsen_use(resources: Resources, step_s: int) -> None:
    """The mean of the looks at the CPUs, and the most memory, of each step."""
    steps: dict[int, list[tuple[float, int]]] = {}
    for second, cpus, memory in resources.timeline:
        steps.setdefault(second // step_s * step_s, []).append((cpus, memory))
    resources.timeline = [
        (begin, sum(cpus for cpus, _ in own) / len(own), max(memory for _, memory in own))
        for begin, own in sorted(steps.items())
    ]


def _keep_longest(gaps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(gaps) <= MOST_GAPS:
        return gaps
    return sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS])
