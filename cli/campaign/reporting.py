"""A campaign's end: the report, the rankings, the step from one node to several, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.units import format_count

from ..errors import EXIT_FAILED, EXIT_LIMIT, RunFailed
from ..experiments.limits import choose_status
from ..output import print_prose, say, write_whole
from ..render.chart import Chart
from ..render.report import make_report
from ..render.tables import Table
from ..render.vega import (
    Row,
    draw_intervals,
    draw_lines,
    draw_points,
    list_series,
    make_axis,
    make_spec,
    needs_log,
)
from ..results.caveats import Place
from ..results.model import Result
from ..results.statistics import Summary, summarize
from ..results.store import StoredResult
from .campaign import Campaign
from .plan import Candidate, Job
from .ranking import (
    Ranking,
    describe_client_costs_of,
    draw_ranking,
    pool_samples,
    rank_candidates,
)


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
    # The gravest: what isn't valid has decided no limit.
    found = {choose_status(one.result) for one in done.values()}
    return next((status for status in (EXIT_FAILED, EXIT_LIMIT) if status in found), 0)


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


def _draw_answer(campaign: Campaign, done: Mapping[str, StoredResult]) -> Chart | None:
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


# --- what more nodes bring ------------------------------------------------------------------------


MOST_SERIES = 7
"""In a figure."""


@dataclass(frozen=True)
class Scaling:
    """A step of a campaign over the number of nodes."""

    step: str
    figure: Chart
    table: Table


@dataclass(frozen=True)
class _Point:
    series: str
    nodes: int
    place: Place
    found: Summary


def find_scaling(step: str, measured: Mapping[Candidate, Sequence[Result]]) -> list[Scaling]:
    """The step's rates and its times over the number of nodes; none unless a series has two numbers or more.
    `measured`: candidate -> its results, one for each repetition that gave one."""
    counts: dict[str, set[int]] = {}
    for candidate, results in measured.items():
        if candidate.nodes is not None and results:
            counts.setdefault(candidate.series, set()).add(candidate.nodes)
    own = {
        one: results
        for one, results in measured.items()
        if one.nodes is not None and len(counts.get(one.series, ())) > 1
    }
    pooled = pool_samples({str(one): results for one, results in own.items()})
    points = [
        _Point(_name_series(one.series, place, pooled), one.nodes or 0, place, summarize(values))
        for one in own
        for place, values in pooled.get(str(one), {}).items()
        if place.response is None
    ]
    points.sort(key=lambda point: (point.series, point.nodes))
    kinds = [[one for one in points if one.place.has_times is times] for times in (False, True)]
    return [Scaling(step, _draw_scaling(step, own), _tabulate_scaling(own)) for own in kinds if own]


def _name_series(
    series: str, place: Place, pooled: Mapping[str, Mapping[Place, Sequence[float]]]
) -> str:
    """With the place, if there are several."""
    places = {one for own in pooled.values() for one in own if one.response is None}
    return series if len(places) == 1 else f"{series}, {place}"


def _draw_scaling(step: str, points: Sequence[_Point]) -> Chart:
    times = points[0].place.has_times
    unit = "Seconds" if times else "Events/s"
    rows: list[Row] = []
    for point in points:
        low, high = point.found.ci95 or (point.found.avg, point.found.avg)
        figure = f"{_format_figure(point.found.avg, times)} {unit.lower()}"
        text = f"{point.series}, {format_count(point.nodes, 'node')}\n{figure}"
        rows.append(
            {"series": point.series, "nodes": point.nodes, "mean": point.found.avg, "low": low,
             "high": high, "text": text}
        )  # fmt: skip
    names = list_series(rows)
    rows = [row for row in rows if row["series"] in names[:MOST_SERIES]]
    counts = sorted({row["nodes"] for row in rows})
    log = needs_log([row[end] for row in rows for end in ("mean", "low", "high")])
    x = make_axis("nodes", "Number of nodes", axis={"values": counts, "format": "d"}, zero=False)
    layers = [
        draw_intervals(x, make_axis("low", unit, log=log), "high", rows),
        draw_lines(x, make_axis("mean", unit, log=log), rows),
        draw_points(x, make_axis("mean", unit, log=log), rows),
    ]
    note = "Mean over the repetitions, with its 95 % interval where there are two or more"
    if log:
        note += " (logarithmic axis)"
    if len(names) > MOST_SERIES:
        note += f"; {len(names) - MOST_SERIES} more are in the table"
    kind = f"nodes-{step}-{'times' if times else 'rates'}"
    return Chart(kind, f"{step} by number of nodes", f"{note}.", make_spec(rows, layers))


def _tabulate_scaling(points: Sequence[_Point]) -> Table:
    """Each figure, how many times as fast it is as with the fewest nodes, and the share of what as many
    times the nodes would be."""
    times = points[0].place.has_times
    first: dict[tuple[str, Place], _Point] = {}
    rows = []
    for point in points:
        base = first.setdefault((point.series, point.place), point)
        speed = base.found.avg / point.found.avg if times else point.found.avg / base.found.avg
        interval = point.found.ci95
        rows.append(
            [
                point.series,
                f"{point.nodes:,}",
                _format_figure(point.found.avg, times),
                f"{_format_figure(interval[0], times)} to {_format_figure(interval[1], times)}"
                if interval
                else "-",
                f"{speed:.2f}",
                f"{speed * base.nodes / point.nodes:.0%}",
            ]
        )
    unit = "Seconds" if times else "Events/s"
    headers = ["Series", "Nodes", unit, "95% interval", "Times as fast", "Of linear"]
    return Table(headers, rows, left=("Series",))


def _format_figure(value: float, times: bool) -> str:
    return f"{value:,.3g}" if times else f"{value:,.0f}"
