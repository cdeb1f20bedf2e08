"""A campaign's end: the report, the rankings, the verdict, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile

from simulator.errors import one_line

from ...results.decision import VerdictMatrix
from ...results.judging import judge
from ...results.loads import Measured as MeasuredCandidate
from ...results.loads import Repetition
from ...results.matrix import Measured, average_samples
from ...results.model import Result
from ...results.naming import NamedResult
from ...results.requirements import RATE
from ...results.store import StoredResult
from ...show.campaign import CampaignPage, DoneJob, make_campaign_report, make_section
from ...show.campaign_charts import draw_campaign, find_scaling
from ...show.comparison import list_differences
from ...show.ranking import Ranking, describe_client_costs_of, rank_candidates
from ...show.requirements import describe_verdict, show_matrix, summarize_verdict
from ...show.tables import Table, format_ms, format_rate
from ...show.verdict import describe_hardware, list_doubts
from ...system.errors import EXIT_FAILED, EXIT_LIMIT, RunFailed
from ...system.installation import program
from ...system.output import print_prose, print_text, terminal_width, write_whole
from ..experiments.experiment import choose_status
from .campaign import Campaign
from .plan import Candidate, Job, Turn, name_target

_LONGEST = 150
"""The most characters of a job's failure reason."""


def report_campaign(campaign: Campaign, left: Sequence[str]) -> int:
    """Write the report, print the verdict or the rankings, and return the exit status. `left`: databases that
    couldn't be removed, with the reasons."""
    done = write_report(campaign)
    folder = campaign.folder
    failed = folder.find_failed(campaign.jobs)
    if failed:
        name, why = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more, see {folder.path})" if len(failed) > 1 else ""
        raise RunFailed(
            f"{len(failed)} of {len(campaign.jobs)} jobs failed: {name}: {why}{more}\n"
            "The same command tries them again."
        )
    if left:
        raise RunFailed("\n".join(left))
    # The most serious one counts: an invalid run decides no limit.
    statuses = {choose_status(stored.result) for stored in done.values()}
    return next((status for status in (EXIT_FAILED, EXIT_LIMIT) if status in statuses), 0)


def write_report(campaign: Campaign) -> dict[str, StoredResult]:
    """Write the report on what is done so far, and print the verdict or, without requirements, the rankings;
    return job -> result."""
    folder = campaign.folder
    done = folder.find_done(campaign.jobs)
    if not done:
        return done
    rankings = rank(campaign, done)
    changes = _list_changes(campaign)
    shown = [ranking for ranking in rankings.values() if ranking.lines] + changes
    folder.keep_requirements(campaign.definition, len(done))
    verdict = judge_campaign(campaign, done)
    write_whole(
        folder.report, make_campaign_report(make_page(campaign, done, rankings, shown, verdict))
    )
    # The verdict is the answer; the report also has the rankings.
    for ranking in shown if verdict is None or campaign.verbose else changes:
        print_text(f"\n{ranking.title}")
        for line in ranking.lines:
            print_prose(line)
    if verdict is not None:
        write_whole(folder.verdict, verdict.model_dump_json(indent=1))
        print_text(f"\n{show_matrix(verdict, terminal_width())}")
        describe = describe_verdict if campaign.verbose else summarize_verdict
        for line in describe(verdict):
            print_prose(line)
        print_prose(
            f"Details, with the runs: {program()} results show {folder.path}, or {folder.verdict}"
        )
    print_text(f"\nReport: {folder.report}\nResults: {folder.results}")
    return done


def judge_campaign(campaign: Campaign, done: Mapping[str, StoredResult]) -> VerdictMatrix | None:
    """The verdict so far; None without requirements. `done`: job -> its result."""
    if campaign.question is None:
        return None
    failed = campaign.folder.find_failed(campaign.jobs)
    turns: dict[Candidate, list[Turn]] = {}
    for turn in sorted(campaign.turns, key=lambda turn: turn[0].repeat):
        turns.setdefault(turn[0].candidate, []).append(turn)
    measured = [
        MeasuredCandidate(
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
    verdict = judge(
        campaign.question,
        campaign.definition.title,
        measured,
        campaign.definition.repeats,
        len(campaign.jobs) - ended,
    )
    changes = campaign.folder.list_requirement_changes()
    return verdict.model_copy(update={"requirement_changes": changes})


def _read_turn(
    turn: Turn, done: Mapping[str, StoredResult], failed: Mapping[str, str]
) -> Repetition:
    """The outcome of one turn. Jobs after a failed one were skipped, and failed for the same reason."""
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


def _list_changes(campaign: Campaign) -> list[Ranking]:
    """A note on candidates that are no longer in the file."""
    present = {str(job.candidate) for job in campaign.jobs}
    removed = [name for name in campaign.folder.list_candidates() if name not in present]
    if not removed:
        return []
    notice = f"their results are kept in {campaign.folder.results}."
    return [Ranking("Left out", [f"{', '.join(removed)}: no longer in the file; {notice}"])]


def rank(campaign: Campaign, done: Mapping[str, StoredResult]) -> dict[str, Ranking]:
    """Step -> its ranking, without lines if there is nothing to compare; for official clients, what they cost
    each candidate."""
    failed = campaign.folder.find_failed(campaign.jobs)
    lacking: Counter[tuple[str, str]] = Counter()
    for turn in campaign.turns:
        # A failure ends the turn.
        broken = dropwhile(lambda job: job.name not in failed, turn)
        lacking.update((job.step, str(job.candidate)) for job in broken if job.name not in done)
    rankings = {}
    for step in campaign.definition.steps:
        measured = collect(campaign, done, step.name)
        if step.command == "clients":
            rankings[step.name] = describe_client_costs_of(step.name, measured)
            continue
        own_failed = {name: lacking[step.name, name] for name in measured}
        ranking = rank_candidates(step.name, measured, campaign.definition.repeats, own_failed)
        if len(measured) < 2 or not step.is_ranked:
            alone = [replace(standing, rank="") for standing in ranking.standings]
            ranking = replace(ranking, lines=[], standings=alone)
        rankings[step.name] = ranking
    return rankings


def collect(
    campaign: Campaign, done: Mapping[str, StoredResult], step: str
) -> dict[str, list[Result]]:
    """Candidate -> its results of a step, by repetition; none if all failed."""
    measured: dict[str, list[Result]] = {}
    for job in _order_jobs(campaign):
        if job.step == step:
            results = measured.setdefault(str(job.candidate), [])
            results += [done[job.name].result] if job.name in done else []
    return measured


def _order_jobs(campaign: Campaign) -> list[Job]:
    """The jobs in report order: by step, then by candidate as in the file."""
    steps = [step.name for step in campaign.definition.steps]
    candidates = campaign.list_candidates()
    return sorted(
        campaign.jobs,
        key=lambda job: (steps.index(job.step), candidates.index(job.candidate), job.repeat),
    )


# --- the page -------------------------------------------------------------------------------------


MOST_TABULATED = 72
"""The most results whose runs have tables in a report: with more it would exceed 2 MB."""


def make_page(
    campaign: Campaign,
    done: Mapping[str, StoredResult],
    rankings: Mapping[str, Ranking],
    shown: Sequence[Ranking],
    verdict: VerdictMatrix | None,
) -> CampaignPage:
    """The content of the report. `done`: job -> its result; `rankings`: step -> its ranking; `shown`: the
    rankings that have lines; `verdict`: of a campaign with requirements."""
    steps = {step.name: collect(campaign, done, step.name) for step in campaign.definition.steps}
    names = list(map(str, campaign.list_candidates()))
    required = verdict.requirements if verdict else []
    figures, single_runs = draw_campaign(
        steps, next((row.bound for row in required if row.key == RATE), None)
    )
    jobs: dict[str, list[DoneJob]] = {name: [] for name in names}
    for job in _order_jobs(campaign):
        if job.name in done:
            repetition = job.repeat if campaign.definition.repeats > 1 else None
            jobs[str(job.candidate)].append(DoneJob(job.step, repetition, done[job.name]))
    # The first results of the most common step, which differ only by candidate.
    most = max(steps.values(), key=lambda measured: sum(map(bool, measured.values())))
    beside = {name: results[0] for name, results in most.items() if results}
    tabulated = len(done) <= MOST_TABULATED
    return CampaignPage(
        title=campaign.definition.title,
        candidates=[
            make_section(place, name, jobs[name], tabulated) for place, name in enumerate(names)
        ],
        left_out=""
        if tabulated
        else f"The tables of {len(done):,} results would be too long for a page:"
        f" {program()} results show ID --results {campaign.folder.results}",
        verdict=verdict,
        steps=list(rankings),
        summary={name: [_sum_up(ranking, name) for ranking in rankings.values()] for name in names},
        doubts=list_doubts(
            [NamedResult(name, job.result) for name in names for job in jobs[name]], "candidates"
        ),
        hardware=describe_hardware([NamedResult(*pair) for pair in beside.items()], "candidates"),
        rankings={ranking.title: ranking.lines for ranking in shown},
        failed=campaign.folder.find_failed(campaign.jobs),
        figures=figures,
        single_runs=single_runs,
        tables={
            step: table
            for step, measured in steps.items()
            if (table := tabulate_step(measured)).rows
        },
        scalings=[
            scaling
            for step in campaign.definition.steps
            for scaling in find_scaling(
                step.name,
                {
                    str(candidate): (candidate.series, candidate.nodes)
                    for candidate in campaign.list_candidates()
                },
                steps[step.name],
            )
        ],
        differences=list_differences(list(beside), list(beside.values())),
    )


def _sum_up(ranking: Ranking, name: str) -> tuple[str, str]:
    """The candidate's rank and figures."""
    for standing in ranking.standings:
        if standing.name == name:
            return standing.rank, standing.figure or standing.beside
    return "", "-"


def tabulate_step(measured: Measured) -> Table:
    """Each candidate's figures at each place: mean and range over its repetitions."""
    pooled = average_samples(measured)
    rows = []
    for place in dict.fromkeys(place for samples in pooled.values() for place in samples):
        unit = "ms" if place.has_times else "events/s" if place.capacity else "inserts/s"
        scale = 1 if place.response else 1000
        for name, samples in pooled.items():
            if average := samples.get(place):
                spread = average.mean, min(average.values), max(average.values)
                cells = [
                    format_ms(scale * value) if place.has_times else format_rate(value)
                    for value in spread
                ]
                rows.append([str(place), name, *cells, unit, len(measured[name])])
    headers = ["At", "Candidate", "Mean", "Lowest", "Highest", "Unit", "Repetitions"]
    return Table(headers, rows, ("At", "Candidate", "Unit"))
