"""A campaign's end: the report, the rankings, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import EXIT_FAILED, RunFailed
from ..output import say, write_whole
from ..results.model import Result
from ..results.store import StoredResult
from ..show.report import make_report
from .asked import Campaign
from .plan import Candidate
from .ranking import Ranking, rank_candidates
from .scaling import Scaling, find_scaling


def report_campaign(campaign: Campaign, left: Sequence[str]) -> int:
    """Write the report and print the ranking; the exit status. `left`: databases that couldn't be
    removed, and why."""
    folder, definition = campaign.folder, campaign.definition
    done, failed = folder.find_done(campaign.names), folder.find_failed()
    if done:
        rankings = rank(campaign, done)
        ordered = [one for name in _order_results(campaign) if (one := done.get(name))]
        page = make_report(
            ordered,
            definition.title,
            {one.step: one.lines for one in rankings},
            failed,
            [(one.figure, one.table) for one in find_scalings(campaign, done)],
        )
        write_whole(folder.report, page)
        for ranking in rankings:
            say(f"\nRanking by {ranking.step}")
            for line in ranking.lines:
                say(line)
        say(f"\nReport: {folder.report}\nResults: {folder.results}")
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


def find_scalings(campaign: Campaign, done: Mapping[str, StoredResult]) -> list[Scaling]:
    """Each step over the number of nodes, where several were tried."""
    found: list[Scaling] = []
    for step in campaign.definition.steps:
        measured: dict[Candidate, list[Result]] = {}
        for job in sorted(campaign.jobs, key=lambda job: job.repeat):
            if job.step == step.name and job.name in done:
                measured.setdefault(job.candidate, []).append(done[job.name].result)
        found += find_scaling(step.name, measured)
    return found


def rank(campaign: Campaign, done: Mapping[str, StoredResult]) -> list[Ranking]:
    """A ranking by each step that can have one: there are two candidates, and its figures compare."""
    found = []
    for step in campaign.definition.steps:
        measured: dict[str, list[StoredResult]] = {}
        for job in sorted(campaign.jobs, key=lambda job: job.repeat):
            if job.step == step.name:
                own = measured.setdefault(str(job.candidate), [])
                own += [done[job.name]] if job.name in done else []
        if len(measured) > 1:
            results = {name: [one.result for one in own] for name, own in measured.items()}
            found.append(rank_candidates(step.name, results, campaign.definition.repeats))
    return found


def _order_results(campaign: Campaign) -> list[str]:
    """Names of the jobs as the report has them: by step, then as the file has the candidates."""
    definition = campaign.definition
    steps = [step.name for step in definition.steps]
    targets, variants = list(definition.targets), [None, *definition.variants]
    jobs = sorted(
        campaign.jobs,
        key=lambda job: (
            steps.index(job.step),
            targets.index(job.candidate.target),
            variants.index(job.candidate.variant),
            job.repeat,
        ),
    )
    return [job.name for job in jobs]
