"""A campaign's end: the report, the rankings, the verdict, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from simulator.errors import one_line

from ...results.caveats import Place
from ...results.decision import VerdictMatrix
from ...results.evidence import Measured as MeasuredCandidate
from ...results.evidence import Repetition
from ...results.judging import judge
from ...results.matrix import Measured, pool_samples
from ...results.model import Result
from ...results.naming import NamedResult
from ...results.store import StoredResult
from ...show.campaign import CampaignPage, DoneJob, make_campaign_report, make_section
from ...show.campaign_charts import draw_campaign, find_scaling
from ...show.comparison import list_differences
from ...show.ranking import Ranking, describe_client_costs_of, rank_candidates
from ...show.requirements import describe_verdict, tabulate_verdict
from ...show.tables import Table, format_ms, format_rate
from ...show.verdict import describe_hardware, list_doubts
from ...system.errors import EXIT_FAILED, EXIT_LIMIT, RunFailed
from ...system.installation import program
from ...system.output import print_prose, print_text, terminal_width, write_whole
from ..experiments.experiment import choose_status
from .campaign import Campaign
from .plan import Candidate, Job, Turn, name_target

_LONGEST = 150
"""The most characters of the reason for which a job failed."""


def report_campaign(campaign: Campaign, left: Sequence[str]) -> int:
    """Write the report and print the rankings; the exit status. `left`: databases that couldn't be removed,
    with the reasons."""
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
    # The gravest counts: what isn't valid has decided no limit.
    statuses = {choose_status(stored.result) for stored in done.values()}
    return next((status for status in (EXIT_FAILED, EXIT_LIMIT) if status in statuses), 0)


def write_report(campaign: Campaign) -> dict[str, StoredResult]:
    """Write the report on what is done so far, and print the rankings; job -> its result."""
    folder = campaign.folder
    done = folder.find_done(campaign.jobs)
    if done:
        rankings = rank(campaign, done)
        shown = [ranking for ranking in rankings.values() if ranking.lines] + _list_changes(
            campaign
        )
        verdict = judge_campaign(campaign, done)
        page = make_campaign_report(make_page(campaign, done, rankings, shown, verdict))
        write_whole(folder.report, page)
        for ranking in shown:
            print_text(f"\n{ranking.title}")
            for line in ranking.lines:
                print_prose(line)
        if verdict is not None:
            _show_verdict(campaign, verdict)
        print_text(f"\nReport: {folder.report}\nResults: {folder.results}")
    return done


def _show_verdict(campaign: Campaign, verdict: VerdictMatrix) -> None:
    """Print the verdict and keep it."""
    write_whole(campaign.folder.verdict, verdict.model_dump_json(indent=1))
    print_text("\nVerdict")
    print_text(tabulate_verdict(verdict).text(width=terminal_width()))
    for line in describe_verdict(verdict):
        print_prose(line)
    print_prose(
        f"Each figure with its runs: {program()} results show {campaign.folder.path}, or"
        f" {campaign.folder.verdict}"
    )


def judge_campaign(campaign: Campaign, done: Mapping[str, StoredResult]) -> VerdictMatrix | None:
    """The verdict on what there is so far; None if nothing is required. `done`: job -> its result."""
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


def _list_changes(campaign: Campaign) -> list[Ranking]:
    """A note on candidates that the file doesn't have any more."""
    present = {str(job.candidate) for job in campaign.jobs}
    notice = f"what they measured is kept in {campaign.folder.results}."
    removed = [
        name
        for name in campaign.folder.list_candidates()
        if name not in present and name not in campaign.without
    ]
    lines = [f"{', '.join(removed)}: no longer in the file; {notice}"] if removed else []
    if campaign.without:
        lines.append(f"{', '.join(campaign.without)}: left out by --without; {notice}")
    return [Ranking("Left out", lines)] if lines else []


def rank(campaign: Campaign, done: Mapping[str, StoredResult]) -> dict[str, Ranking]:
    """Step -> its ranking, without lines if there is nobody to compare with; for official clients, what they
    cost each candidate."""
    rankings = {}
    for step in campaign.definition.steps:
        results = _name_candidates(_collect(campaign, done, step.name))
        if step.command == "clients":
            rankings[step.name] = describe_client_costs_of(step.name, results)
            continue
        failed = _count_failed(campaign, done, step.name)
        ranking = rank_candidates(step.name, results, campaign.definition.repeats, failed)
        if len(results) < 2:
            alone = [replace(standing, rank="") for standing in ranking.standings]
            ranking = replace(ranking, lines=[], standings=alone)
        rankings[step.name] = ranking
    return rankings


def _count_failed(
    campaign: Campaign, done: Mapping[str, StoredResult], step: str
) -> dict[str, int]:
    """Candidate -> its repetitions of a step without a result, since the job or one before it failed."""
    failed = campaign.folder.find_failed(campaign.jobs)
    counts: dict[str, int] = {}
    for turn in campaign.turns:
        places = [place for place, job in enumerate(turn) if job.name in failed]
        for place, job in enumerate(turn):
            if job.step == step and job.name not in done and places and place >= places[0]:
                counts[str(job.candidate)] = counts.get(str(job.candidate), 0) + 1
    return counts


def _collect(
    campaign: Campaign, done: Mapping[str, StoredResult], step: str
) -> dict[Candidate, list[Result]]:
    """Candidate -> its results of a step, by repetition; none if all failed."""
    measured: dict[Candidate, list[Result]] = {}
    for job in _order_jobs(campaign):
        if job.step == step:
            results = measured.setdefault(job.candidate, [])
            results += [done[job.name].result] if job.name in done else []
    return measured


def _name_candidates(measured: Mapping[Candidate, list[Result]]) -> dict[str, list[Result]]:
    return {str(candidate): results for candidate, results in measured.items()}


def _order_jobs(campaign: Campaign) -> list[Job]:
    """The jobs as the report has them: by step, then as the file has the candidates."""
    steps = [step.name for step in campaign.definition.steps]
    candidates = campaign.list_candidates()
    return sorted(
        campaign.jobs,
        key=lambda job: (steps.index(job.step), candidates.index(job.candidate), job.repeat),
    )


# --- the page -------------------------------------------------------------------------------------


MOST_TABULATED = 72
"""The most results whose runs have tables in a report: with more of them it would be larger than 2 MB."""


def make_page(
    campaign: Campaign,
    done: Mapping[str, StoredResult],
    rankings: Mapping[str, Ranking],
    shown: Sequence[Ranking],
    verdict: VerdictMatrix | None,
) -> CampaignPage:
    """What the report has. `done`: job -> its result; `rankings`: step -> its ranking; `shown`: the rankings
    that have lines; `verdict`: that of a campaign with requirements."""
    steps = {
        step.name: _name_candidates(_collect(campaign, done, step.name))
        for step in campaign.definition.steps
    }
    names = list(map(str, campaign.list_candidates()))
    figures, single_runs = draw_campaign(steps, _find_required_rate(verdict))
    results = [
        NamedResult(name, result)
        for name in names
        for measured in steps.values()
        for result in measured.get(name, ())
    ]
    beside = _choose_alike(steps)
    tabulated = len(done) <= MOST_TABULATED
    return CampaignPage(
        title=campaign.definition.title,
        candidates=[
            make_section(place, name, _list_jobs(campaign, done, name), tabulated)
            for place, name in enumerate(names)
        ],
        left_out=""
        if tabulated
        else f"The tables of {len(done):,} results would be too long for a page:"
        f" {program()} results show ID --results {campaign.folder.results}",
        verdict=verdict,
        steps=list(rankings),
        summary=_summarize(names, rankings),
        doubts=list_doubts(results, "candidates"),
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


def _find_required_rate(verdict: VerdictMatrix | None) -> float | None:
    """Events per second that are required, if any are."""
    required = verdict.requirements if verdict else []
    return next(
        (requirement.bound for requirement in required if requirement.key == "events_per_s"), None
    )


def _list_jobs(
    campaign: Campaign, done: Mapping[str, StoredResult], candidate: str
) -> list[DoneJob]:
    """The candidate's jobs that are done, by step and repetition."""
    several = campaign.definition.repeats > 1
    return [
        DoneJob(job.step, job.repeat if several else None, done[job.name])
        for job in _order_jobs(campaign)
        if str(job.candidate) == candidate and job.name in done
    ]


def _choose_alike(steps: Mapping[str, Measured]) -> dict[str, Result]:
    """Candidate -> its first result of the step for which most of them have one, so that only what belongs to
    the candidates differs."""
    most: Measured = max(steps.values(), key=lambda measured: sum(map(bool, measured.values())))
    return {name: results[0] for name, results in most.items() if results}


def _summarize(
    names: Sequence[str], rankings: Mapping[str, Ranking]
) -> dict[str, list[tuple[str, str]]]:
    """Candidate -> its rank and what it measured in each step."""
    rows: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for ranking in rankings.values():
        standings = {standing.name: standing for standing in ranking.standings}
        for name, cells in rows.items():
            standing = standings.get(name)
            cells.append(
                (standing.rank, standing.figure or standing.beside) if standing else ("", "-")
            )
    return rows


def tabulate_step(measured: Measured) -> Table:
    """What each candidate measured at each place: mean and range over its repetitions."""
    pooled = pool_samples(measured)
    places = dict.fromkeys(place for samples in pooled.values() for place in samples)
    rows = [
        [
            str(place),
            name,
            *(_format(place, value) for value in (fmean(values), min(values), max(values))),
            _name_unit(place),
            len(measured[name]),
        ]
        for place in places
        for name, samples in pooled.items()
        if (values := samples.get(place))
    ]
    headers = ["At", "Candidate", "Mean", "Lowest", "Highest", "Unit", "Repetitions"]
    return Table(headers, rows, ("At", "Candidate", "Unit"))


def _name_unit(place: Place) -> str:
    if place.has_times:
        return "ms"
    return "events/s" if place.capacity else "inserts/s"


def _format(place: Place, value: float) -> str:
    if place.has_times:
        return format_ms(value if place.response else 1000 * value)
    return format_rate(value)
