"""The verdict on a campaign: its results by candidate and repetition, judged, shown and kept."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.errors import one_line

from ..output import write_whole
from ..results.decision import VerdictMatrix
from ..results.evidence import Measured, Repetition
from ..results.judging import judge
from ..results.store import StoredResult
from .campaign import Campaign
from .plan import Candidate, Turn, name_target

_LONGEST = 150
"""The most characters of the reason for which a job failed."""


def judge_campaign(campaign: Campaign, done: Mapping[str, StoredResult]) -> VerdictMatrix | None:
    """The verdict on what there is so far; None if nothing is required. `done`: job -> its result."""
    if campaign.question is None:
        return None
    failed = campaign.folder.find_failed(campaign.names)
    turns: dict[Candidate, list[Turn]] = {}
    for turn in sorted(campaign.turns, key=lambda turn: turn[0].repeat):
        turns.setdefault(turn[0].candidate, []).append(turn)
    measured = [
        Measured(
            str(candidate),
            [_read_turn(turn, done, failed) for turn in turns[candidate]],
            campaign.config.target(name_target(campaign.definition, candidate)).price.over(
                campaign.definition.prices
            ),
        )
        for candidate in campaign.list_candidates()
    ]
    ended = sum(
        len(repetition.stored) + len(repetition.failed)
        for candidate in measured
        for repetition in candidate.repetitions
    )
    return judge(
        campaign.question,
        campaign.definition.title,
        measured,
        campaign.definition.repeats,
        len(campaign.jobs) - ended,
    )


def _read_turn(
    turn: Turn, done: Mapping[str, StoredResult], failed: Mapping[str, str]
) -> Repetition:
    """What one turn gave. A job after one that failed was left out, and failed for the same reason."""
    stored, reasons = [], []
    for job in turn:
        if job.name in done:
            stored.append(done[job.name])
        elif job.name in failed:
            reasons.append(f"{job.name} failed: {one_line(failed[job.name], _LONGEST)}")
        elif reasons:
            reasons.append(reasons[0])
    ended = len(stored) + len(reasons) == len(turn)
    return Repetition(turn[0].repeat, stored, reasons, ended)


def keep_verdict(campaign: Campaign, verdict: VerdictMatrix) -> None:
    """Write the verdict into the campaign's folder."""
    write_whole(campaign.folder.verdict, verdict.model_dump_json(indent=1))
