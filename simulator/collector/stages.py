"""What became of each stage of a rate that changes. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..contract import Load, Offered, Role, StageResult, WorkerFigures
from ..histograms import latency_ms, merge_histograms
from .verdicts import is_missing

_SHORTEST_S = 1e-3
"""Of less of a stage there are no figures."""


def merge_stages(
    parts: Sequence[WorkerFigures], load: Load, in_flight: int, end_s: float
) -> list[StageResult]:
    """The stages that a run came to, by what each worker measured. `in_flight`: of each worker; `end_s`: of
    the window, since the common start."""
    found = []
    places = load.workers * in_flight * load.events_per_request
    ends = accumulate(stage.duration_s for stage in load.stages)
    before = 0
    for number, (stage, ended_s) in enumerate(zip(load.stages, ends, strict=True)):
        own = [part.stages[number] for part in parts if part.stages]
        begins_s = max(ended_s - stage.duration_s, load.warm_up_s)
        duration_s = min(ended_s, end_s) - begins_s
        due = sum(one.due for one in own)
        # What devices that are cut off hold back isn't the database's.
        held = round(load.count_held(ended_s))
        backlog = max(0, sum(one.backlog for one in own) - held)
        if own and duration_s >= _SHORTEST_S:
            found.append(
                StageResult(
                    rate_per_s=stage.rate_per_s,
                    begins_s=begins_s,
                    duration_s=duration_s,
                    due=due,
                    achieved=sum(one.achieved for one in own),
                    backlog=backlog,
                    saturated=is_missing(backlog - before, due, places, True, load),
                    latency_ms=latency_ms(merge_histograms(one.histogram for one in own)),
                )
            )
        before = backlog
    return found


def judge_stages(offered: Offered | None, stages: Sequence[StageResult], load: Load) -> None:
    """A run is saturated, too, if a stage of it was, though it may have caught up in a later one."""
    number = next((place for place, one in enumerate(stages, 1) if one.saturated), None)
    if offered is None or offered.saturated or number is None:
        return
    stage = stages[number - 1]
    unit = "events" if load.role is Role.WRITE else "queries"
    offered.saturated = True
    offered.reason = (
        f"in stage {number} ({stage.duration_s:g} s at {stage.rate_per_s:,.10g} {unit}/s) {stage.due:,}"
        f" {unit} were due, {stage.achieved:,} were done in it"
    )
