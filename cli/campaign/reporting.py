"""A campaign's end: the report, the rankings, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import EXIT_FAILED, RunFailed
from ..output import print_prose, say, write_whole
from ..render.figure import Figure
from ..render.report import make_report
from ..results.model import Result
from ..results.store import StoredResult
from .campaign import Campaign
from .plan import Candidate, Job
from .ranking import Ranking, describe_client_costs_of, rank_candidates
from .ranking_figure import draw_ranking
from .scaling import Scaling, find_scaling


def report_campaign(campaign: Campaign, left: Sequence[str]) -> int:
    """Write the report and print the ranking; the exit status. `left`: databases that couldn't be
    removed, and why."""
    done = write_report(campaign)
    folder = campaign.folder
    failed = folder.find_failed(campaign.names)
    if failed:
        name, why = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more, see {folder.path})" if len(failed) > 1 else ""
        raise RunFailed(
            f"{len(failed)} of {len(campaign.jobs)} jobs failed: {name}: {why}{more}\n"
            "The same command tries them again."
        )
    if left:
        raise RunFailed("\n".join(left))
    return 0 if all(one.result.valid for one in done.values()) else EXIT_FAILED


def write_report(campaign: Campaign) -> dict[str, StoredResult]:
    """Write the report on what is done so far, and print the rankings; job -> its result."""
    folder, definition = campaign.folder, campaign.definition
    done = folder.find_done(campaign.names)
    if done:
        rankings = [*rank(campaign, done), *_list_changes(campaign)]
        ordered = [one for job in _order_jobs(campaign) if (one := done.get(job.name))]
        page = make_report(
            ordered,
            definition.title,
            {one.title: one.lines for one in rankings},
            folder.find_failed(campaign.names),
            [(one.figure, one.table) for one in find_scalings(campaign, done)],
            _draw_answer(campaign, done),
        )
        write_whole(folder.report, page)
        for ranking in rankings:
            say(f"\n{ranking.title}")
            for line in ranking.lines:
                print_prose(line)
        say(f"\nReport: {folder.report}\nResults: {folder.results}")
    return done


def _list_changes(campaign: Campaign) -> list[Ranking]:
    """A word on candidates that the file doesn't have any more."""
    present = {str(job.candidate) for job in campaign.jobs}
    gone = [name for name in campaign.folder.list_candidates() if name not in present]
    if not gone:
        return []
    where = campaign.folder.results
    text = f"{', '.join(gone)}: not in the file any more; what they measured is kept in {where}."
    return [Ranking("Left out", [text])]


def find_scalings(campaign: Campaign, done: Mapping[str, StoredResult]) -> list[Scaling]:
    """Each step over the number of nodes, where several were tried."""
    found: list[Scaling] = []
    for step in campaign.definition.steps:
        measured = {one: own for one, own in _collect(campaign, done, step.name).items() if own}
        found += find_scaling(step.name, measured)
    return found


def rank(campaign: Campaign, done: Mapping[str, StoredResult]) -> list[Ranking]:
    """A ranking by each step, if there are two candidates; of official clients what each costs."""
    found = []
    for step in campaign.definition.steps:
        results = _name_candidates(_collect(campaign, done, step.name))
        if step.command == "clients":
            found.append(describe_client_costs_of(step.name, results))
        elif len(results) > 1:
            failed = _count_failed(campaign, done, step.name)
            found.append(rank_candidates(step.name, results, campaign.definition.repeats, failed))
    return found


def _count_failed(
    campaign: Campaign, done: Mapping[str, StoredResult], step: str
) -> dict[str, int]:
    """Candidate -> its repetitions of a step without a result, since the job or one before it failed."""
    failed = campaign.folder.find_failed(campaign.names)
    found: dict[str, int] = {}
    for turn in campaign.turns:
        places = [place for place, job in enumerate(turn) if job.name in failed]
        for place, job in enumerate(turn):
            if job.step == step and job.name not in done and places and place >= places[0]:
                found[str(job.candidate)] = found.get(str(job.candidate), 0) + 1
    return found


def _draw_answer(campaign: Campaign, done: Mapping[str, StoredResult]) -> Figure | None:
    """The first ranking that can be drawn."""
    for step in campaign.definition.steps:
        figure = draw_ranking(step.name, _name_candidates(_collect(campaign, done, step.name)))
        if figure is not None:
            return figure
    return None


def _collect(
    campaign: Campaign, done: Mapping[str, StoredResult], step: str
) -> dict[Candidate, list[Result]]:
    """Candidate -> its results of a step, by repetition; none if all failed."""
    found: dict[Candidate, list[Result]] = {}
    for job in _order_jobs(campaign):
        if job.step == step:
            own = found.setdefault(job.candidate, [])
            own += [done[job.name].result] if job.name in done else []
    return found


def _name_candidates(measured: Mapping[Candidate, list[Result]]) -> dict[str, list[Result]]:
    return {str(candidate): results for candidate, results in measured.items()}


def _order_jobs(campaign: Campaign) -> list[Job]:
    """The jobs as the report has them: by step, then as the file has the candidates."""
    definition = campaign.definition
    steps = [step.name for step in definition.steps]
    targets, variants = list(definition.targets), [None, *definition.variants]
    return sorted(
        campaign.jobs,
        key=lambda job: (
            steps.index(job.step),
            targets.index(job.candidate.target),
            job.candidate.nodes or 0,
            variants.index(job.candidate.variant),
            job.repeat,
        ),
    )
