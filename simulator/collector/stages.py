"""What became of each stage of a rate that changes. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..contract import Load, Offered, Role, StageResult, WorkerFigures
from ..histograms import latency_ms, merge_histograms
from .verdicts import is_missing

_SHORTEST_S = 1e-3
"""A shorter part of a stage has no figures."""


def merge_stages(
    parts: Sequence[WorkerFigures], load: Load, in_flight: int, end_s: float
) -> list[StageResult]:
    """The stages that a run came to, from what each worker measured. `in_flight`: of each worker; `end_s`:
    the window's end since the common start."""
    results = []
    places = load.workers * in_flight * load.events_per_request
    ends = accumulate(stage.duration_s for stage in load.stages)
    before = 0
    for number, (stage, ended_s) in enumerate(zip(load.stages, ends, strict=True)):
        shares = [part.stages[number] for part in parts if part.stages]
        begins_s = max(ended_s - stage.duration_s, load.warm_up_s)
        duration_s = min(ended_s, end_s) - begins_s
        due = sum(share.due for share in shares)
        # What devices hold back while they are cut off isn't the database's fault.
        held = round(load.count_held(ended_s))
        backlog = max(0, sum(share.backlog for share in shares) - held)
        if shares and duration_s >= _SHORTEST_S:
            results.append(
                StageResult(
                    rate_per_s=stage.rate_per_s,
                    begins_s=begins_s,
                    duration_s=duration_s,
                    due=due,
                    achieved=sum(share.achieved for share in shares),
                    backlog=backlog,
                    saturated=is_missing(backlog - before, due, places, True, load),
                    latency_ms=latency_ms(merge_histograms(share.histogram for share in shares)),
                )
            )
        before = backlog
    return results


def judge_stages(offered: Offered | None, stages: Sequence[StageResult], load: Load) -> None:
    """Mark a run as saturated if a stage of it was, though it may have caught up in a later one."""
    number = next((place for place, stage in enumerate(stages, 1) if stage.saturated), None)
    if offered is None or offered.saturated or number is None:
        return
    stage = stages[number - 1]
    unit = "events" if load.role is Role.WRITE else "queries"
    offered.saturated = True
    offered.reason = (
        f"in stage {number} ({stage.duration_s:g} s at {stage.rate_per_s:,.10g} {unit}/s)"
        f" {stage.due:,} {unit} were due, but only {stage.achieved:,} were done"
    )
