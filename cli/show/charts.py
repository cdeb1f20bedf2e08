"""The charts of results and of campaigns: each is a template with the figures that it shows, and when it can
be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from simulator.units import format_count

from ..results.clients import are_asked, choose_columns, collect_figures
from ..results.matrix import pool_samples
from ..results.model import Result
from ..results.naming import NamedResult
from ..results.statistics import summarize
from . import points, runs
from .points import Shown, Subjects, gather, make_panel, read_steps
from .ranking import describe_doubts
from .runs import Timed
from .tables import Table, format_interval, format_ms, format_rate
from .templates import (
    CAPACITY,
    LOG,
    MILLISECONDS,
    OVER_EVENTS,
    OVER_LEVEL,
    OVER_NODES,
    OVER_RATE,
    OVER_WORKERS,
    PALER,
    Axis,
    Bar,
    Chart,
    Panel,
    Places,
    draw_bars,
    draw_distribution,
    draw_matrix,
    draw_over,
    draw_ranges,
    draw_spans,
    draw_timeline,
    is_matrix,
    rank,
    wrap_label,
)
from .vega import HEIGHT, PHASES, SERIES, Row, find_label_step, resize


@dataclass(frozen=True)
class Kind:
    """A kind of chart: which figures a template shows, and of which results."""

    title: str
    template: Callable[[Kind, Subjects, Places], Chart | None]
    figures: Any
    """What of the observations it shows, or what reads it from what a result keeps by the second."""
    note: str = ""
    keep: Callable[[Result], bool] = lambda result: True
    """Which results it is of."""
    remark: Callable[[Subjects], Sequence[str]] = lambda subjects: ()
    name: str = ""

    def make(self, spec: Row, note: str = "", log: bool = False, title: str = "") -> Chart:
        """The chart of this kind; `note` and `title`: others than its own."""
        note = note or self.note
        note = f"{note.removesuffix('.')}{LOG}." if log else note
        return Chart(self.name, title or self.title, note, spec)


# --- the templates on results ---------------------------------------------------------------------


def _over(axis: Axis, kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """Lines over an axis. Those at a single number of workers are bars."""
    panels: dict[str, Panel] = {}
    for shown in kind.figures:
        found = gather(subjects, shown, axis, kind.keep)
        if found:
            panel = make_panel(found, shown, axis, subjects)
            if before := panels.get(panel.title):
                rows = sorted(
                    [*before.rows, *panel.rows], key=lambda row: (row["series"], row["x"])
                )
                panel = replace(panel, rows=rows, samples=[*before.samples, *panel.samples])
            panels[panel.title] = panel
    if not panels:
        return None
    counts = {row["x"] for panel in panels.values() for row in panel.rows}
    if axis is not OVER_WORKERS or len(counts) > 1:
        spec, log = draw_over(axis, list(panels.values()), places)
        return replace(kind.make(spec, log=log), remarks=kind.remark(subjects))
    ((title, panel),) = panels.items()
    bars = [replace(bar, series="") for bar in rank(panel.bars)]
    spec, note = draw_bars(bars, title, limits=panel.limits)
    own = kind.figures[0].most
    chart = kind.make(
        spec, "" if own else note,
        title=f"{kind.title.removesuffix(' by number of workers')} with {axis.say(counts.pop())}",
    )  # fmt: skip
    return replace(chart, remarks=kind.remark(subjects))


over_workers, over_level = partial(_over, OVER_WORKERS), partial(_over, OVER_LEVEL)
over_events = partial(_over, OVER_EVENTS)


def over_rate(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """Each step of searches over its rate, and below how much of it was achieved."""
    steps = read_steps(subjects)
    if not steps.rows:
        return None
    searches = points.list_searches(subjects)
    alone = len(searches) == 1
    rates = [answer.events_per_s for _, answer, _ in searches if alone and answer.events_per_s]
    spec, _ = draw_over(OVER_RATE, steps.list_panels(alone), places, rates)
    dashed = "Dashed: the limit" + (", and the capacity" if rates else "")
    remarks = [
        f"{dashed}; below, {points.KEPT_UP:.0f} % of what was due, under which a run is saturated.",
        "Response times count from when a request was due; they grow without end if it doesn't keep up.",
    ]
    return replace(kind.make(spec), remarks=remarks)


def bars(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """A bar for each figure, in the order in which they are found."""
    shown = kind.figures[1](subjects)
    return kind.make(*draw_bars(shown, kind.figures[0](subjects))) if shown else None


def ranges(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """The times of queries, each from the fastest to the slowest."""
    rows, counted = kind.figures(subjects)
    if not rows:
        return None
    spec, log = draw_ranges(rows, "Query", places)
    note = kind.note.format(counted)
    return kind.make(spec, f"{note} {PALER}" if is_matrix(rows) else note, log)


def distribution(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """Times over the percentiles, a curve for each where all have their histograms."""
    of, read = kind.figures
    timed, note = read(subjects)
    if not timed:
        return None
    shown = [row for subject in timed for row in subject.list_points()]
    curve = [row for subject in timed for row in subject.list_curve()]
    spec, whole = draw_distribution(of, shown, curve, places)
    if whole:
        note += " The curve runs to the slowest request; the axis stretches its tail."
    return kind.make(spec, note)


def timeline(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """What happened in each second of a run of each."""
    examples = kind.figures(subjects)
    panels, about = runs.list_panels(examples)
    if not panels:
        return None
    own = [run for _, run in examples]
    warm_ups = sorted({run.group.warm_up_s for run in own if run.group.warm_up_s})
    marks = [mark for run in own for mark in run.run.marks]
    gaps = runs.list_gaps(examples)
    spec = draw_timeline(panels, marks, gaps, warm_ups, places)
    remarks = runs.describe_disturbances(examples)
    if marks:
        shown = "grey is" if len({gap.series for gap in gaps}) < 2 else "“no answer” is"
        remarks.append(
            f"Each solid line is a disturbance of the database; {shown} the longest time after it in which"
            " nothing was acknowledged."
        )
    if warm_ups:
        remarks.append("No other figure includes what is before the dashed line (warm-up).")
    remarks += [*about, _SLOWEST, _LAST_SECOND]
    if any(len(run.group.timeline) > runs.MOST_POINTS for run in own):
        remarks.append("Each point is the mean of several seconds.")
    return replace(
        kind.make(spec, kind.note.format(runs.describe_places(subjects))), remarks=remarks
    )


_SLOWEST = "The slowest worker is the one with the fewest events per second."
_LAST_SECOND = "A last second that isn't whole is left out."


def spans(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """The phases of each run."""
    rows, phases = kind.figures(subjects)
    if not rows:
        return None
    names = [phase.replace("_", " ") for phase in phases]
    fill = {
        "field": "series", "type": "nominal",
        "scale": {"domain": names, "range": [PHASES[phase] for phase in phases]},
        "legend": {"direction": "horizontal", "columns": len(names)},
    }  # fmt: skip
    return kind.make(draw_spans(rows, ("Run", "Seconds"), fill))


def matrix(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """The settings of a tuning."""
    found = kind.figures(subjects)
    if found is None:
        return None
    rows, sides, names = found
    unit = "capacity, events/s" if _name_tuned_rate(subjects) == WITHIN_LIMITS else "inserts/s"
    others = ", ".join(name for name in names if name not in dict(sides))
    whatever = f", with the best of {others}" if others else ""
    return kind.make(draw_matrix(rows, *sides), kind.note.format(unit, whatever))


# --- the kinds of `plot` --------------------------------------------------------------------------

MOST_QUERIES = 7
"""Queries in one chart: with more, curves can't be told apart."""


def _time_requests(subjects: Subjects) -> tuple[list[Timed], str]:
    note = (
        f"Of the run with the highest p99 {runs.describe_places(subjects)}, retries included. A request is a"
        " whole batch."
    )
    if any(run.group.offered for (result,) in subjects.values() for run in result.writers):
        note += " At a given rate (open loop) it counts from when the request was due: the response time."
    found = [runs.time_groups(name, [run.group]) for name, run in runs.choose_slowest(subjects)]
    return [timed for timed in found if timed is not None], note


def _time_queries(subjects: Subjects) -> tuple[list[Timed], str]:
    timed, note = runs.time_queries(subjects), "All valid runs together."
    if len(timed) > MOST_QUERIES:
        note += f" The {MOST_QUERIES} with the highest p99 of {len(timed)}."
    if any(run.group.offered for (result,) in subjects.values() for run in result.readers):
        note += " At a given rate it counts from when the query was due: the response time."
    return timed[:MOST_QUERIES], note


RATE, WITHIN_LIMITS = "Inserts/s", "Capacity, events/s"


def _name_client_rate(subjects: Subjects) -> str:
    return "Queries/s" if are_asked(list(chain.from_iterable(subjects.values()))) else RATE


def _name_client_cpu(subjects: Subjects) -> str:
    return f"µs of CPU per {'query' if are_asked(list(chain.from_iterable(subjects.values()))) else 'event'}"


def _name_tuned_rate(subjects: Subjects) -> str:
    tunings = [
        result.tuning for results in subjects.values() for result in results if result.tuning
    ]
    return WITHIN_LIMITS if any(tuning.limits for tuning in tunings) else RATE


def _is_level(result: Result) -> bool:
    return result.by_fill_level


def _is_sweep(result: Result) -> bool:
    return result.command in ("insert", "mixed") and not result.by_fill_level


_INSERTS = Shown("inserts_per_s", RATE, "inserts/s", "{:,.1f}".format)
_BOUND = {80.0: "client-bound from here on"}

KINDS: dict[str, Kind] = {
    "workers": Kind(
        "Throughput by number of workers", over_workers, [_INSERTS],
        "Mean over the valid runs of each worker count, with its 95 % interval (Student's t) where there are"
        " two runs or more.",
        _is_sweep,
    ),
    "fill-level": Kind(
        "Throughput by fill level", over_level, [replace(_INSERTS, x="level")],
        "One run at each level: the variation from run to run is unknown.", _is_level,
    ),
    "storage": Kind(
        "Disk by fill level", over_events,
        [
            Shown("storage_bytes", "On disk: bytes", "bytes", "{:,.10g}".format, "On disk ",
                  "storage_events", HEIGHT, "~s"),
            Shown("storage_index_bytes", "Indexes: bytes", "bytes", "{:,.10g}".format, "Indexes ",
                  "storage_events", HEIGHT // 2, "~s"),
            Shown("bytes_per_event", "Added: bytes/event", "bytes/event", "{:,.10g}".format, "Added ",
                  "storage_events", HEIGHT // 2, "~s"),
        ],
        "What the tables take on disk after each step, all copies counted, with what is allocated ahead of"
        " events. The last panel shows what a step added ÷ its own events, where that is many times what the"
        " database allocates at a time.",
        _is_level,
    ),
    "queries": Kind(
        "Query times", ranges, points.list_query_ranges,
        "Mean of {}, and the range from the fastest to the slowest.",
    ),
    "rate": Kind(
        "Response time over rate", over_rate, None,
        "Each dot is a step of the search, the lines go through their medians; invalid steps are left out.",
    ),
    "tuning": Kind(
        "What settings bring", matrix, points.list_cells,
        "The highest {} that was reached with each pair of values{}; for combinations that were dropped"
        " early, from a short run. The two settings are those that matter most.",
    ),
    "clients": Kind(
        "Throughput by client", bars, (_name_client_rate, points.list_client_bars),
    ),
    "client-cpu": Kind(
        "CPU of each client", bars,
        (_name_client_cpu, partial(points.list_client_bars, cpu=True)),
    ),
    "time": Kind(
        "Throughput over time", timeline, runs.choose_examples,
        "Events acknowledged in each second of the slowest valid run {}.",
    ),
    "latency": Kind("Latency of a request", distribution, ("the requests", _time_requests)),
    "query-latency": Kind("How long queries took", distribution, ("the queries", _time_queries)),
    "client": Kind(
        "What the client cost", over_workers,
        [Shown("client_cpu_share", "Client CPU, % of a core per worker", "%", "{:.2f}".format,
               factor=100, most=True, log=False, limits=_BOUND)],
        "CPU time of the workers ÷ (workers × window), of the busiest run at each worker count. A client that"
        " is busy measures itself, not the database.",
        remark=runs.list_bound,
    ),
    "phases": Kind(
        "Phases of a run", spans, runs.list_phases,
        "From starting collector and workers to removing them. The measured window is within the phase run.",
    ),
}  # fmt: skip
"""All kinds of chart of `plot`, the most telling first."""

MOST_BARS = 10
"""Bars in the chart of the answer, which should be visible without scrolling."""
_TALLEST_PX = 270

_INSERT_BARS = partial(points.list_bars, read=points.read_inserts, best=True)
_ANSWERS: dict[str, tuple[str, Callable[[Subjects], str], Callable[[Subjects], list[Bar]]]] = {
    "capacities": ("Capacity", lambda subjects: CAPACITY, points.list_answer_bars),
    "inserts": ("Throughput of inserts", lambda subjects: RATE, _INSERT_BARS),
    "mixed runs": ("Throughput of inserts beside readers", lambda subjects: RATE, _INSERT_BARS),
    "fill levels": ("Throughput of inserts by fill level", lambda subjects: RATE, _INSERT_BARS),
    "queries": (
        "Query times", lambda subjects: MILLISECONDS,
        partial(points.list_bars, read=points.read_queries, at_first=True),
    ),
    "tunings": (
        "Throughput with the best settings", _name_tuned_rate,
        partial(points.list_bars, read=points.read_finalists, best=True),
    ),
    "clients": ("Throughput by client", _name_client_rate, points.list_client_bars),
}  # fmt: skip
"""Kind of result -> the chart of its answer: title, unit, and what collects its bars."""
_IN_ORDER = ("queries", "clients")
"""Kinds whose bars of one result belong together, and are not ranked."""


def _as_subjects(results: Sequence[NamedResult]) -> Subjects:
    return {named.name: [named.result] for named in results}


def draw_answer(results: Sequence[NamedResult]) -> Chart | None:
    """The chart that answers the question: the first of capacity, inserts, mixed runs, fill levels, queries,
    tunings and clients that was measured. Several results each show their best, the fastest first."""
    for kind, (title, name_unit, collect) in _ANSWERS.items():
        subjects = _as_subjects([named for named in results if named.result.kind == kind])
        found = collect(subjects)
        if found:
            if len(subjects) > 1 and kind not in _IN_ORDER:
                found = rank(found)
            # A screen has room for fewer where their names take several lines.
            lines = max(len(wrap_label(bar.name)) for bar in found[:MOST_BARS])
            most = min(MOST_BARS, _TALLEST_PX // find_label_step(lines))
            spec, note = draw_bars(found[:most], name_unit(subjects))
            if len(found) > most:
                note = f"{note} {len(found) - most:,} more are in the tables below."
            return Chart("answer", title, note, spec)
    return None


def draw(kind: str, results: Sequence[NamedResult]) -> Chart | None:
    """The chart of this kind; None if these results have no data for it."""
    row = replace(KINDS[kind], name=kind)
    return row.template(row, _as_subjects(results), {})


def draw_all(results: Sequence[NamedResult]) -> list[Chart]:
    """Every chart that these results have data for."""
    return [chart for kind in KINDS if (chart := draw(kind, results)) is not None]


def name_sources(kind: str, named: Sequence[NamedResult]) -> list[str]:
    """A sentence for each source of results in such a chart that this tool didn't measure; those of the
    answer stand beside it, in words."""
    if kind not in KINDS:
        return []
    sources = dict.fromkeys(
        one.result.source for one in named if one.result.source and draw(kind, [one]) is not None
    )
    return [f"Not measured by this tool: {source}." for source in sources]


# --- the charts of a campaign ---------------------------------------------------------------------

MOST_DRAWN = 2 * len(SERIES)
"""The most candidates of which lines are drawn: of more, two would look alike."""
PAGE_WIDTH = 560
"""Pixels of a plot: a page of 1400 has two beside each other."""
MOST_PANELS = 4
"""The most queries that are drawn over fill levels."""

_OVER_LEVELS = (
    "Mean over the repetitions at each level, with its 95 % interval; each dot is a repetition."
)


def _capacities(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """The highest rate that each candidate held."""
    found, none = points.list_capacity_bars(subjects, describe_doubts(subjects))
    if not found:
        return None
    steps = read_steps(subjects)
    spec, _ = draw_bars(rank(found), WITHIN_LIMITS, "repetition", places, kind.figures)
    limits = ", ".join(map(str, steps.limits))
    title = kind.title + (f" within {limits}" if limits else "")
    note = kind.note + (f" No rate held: {', '.join(none)}." if none else "")
    for required in kind.figures:
        note += f" Dashed: the {required:,.10g} events/s that are required."
    return kind.make(spec, note, title=title)


def _responses(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """What the limit is about that most steps failed, over the rate."""
    steps = read_steps(subjects)
    if not steps.rows:
        return None
    limit = steps.binding
    part, title = (limit.name, points.name_limit(limit)) if limit else ("p99", "Response p99, ms")
    panel = steps.draw(title, [part], points.NEAR_RATE, HEIGHT)
    spec, _ = draw_over(OVER_RATE, [panel], places, kind.figures)
    note = kind.note
    if panel.limits:
        note += " Dashed: the limit" + (", and the required rate." if kind.figures else ".")
    remarks = ["Response times count from when a request was due; invalid steps are left out."]
    return replace(kind.make(spec, note), remarks=remarks)


def _rates(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """A bar for each candidate, the fastest first, unless only one has a rate; with several numbers of
    workers lines over them."""
    pooled = {
        name: {
            place: values
            for place, values in samples.items()
            if not (place.has_times or place.capacity or place.level is not None)
        }
        for name, samples in pool_samples(subjects).items()
    }
    if len({place for samples in pooled.values() for place in samples if place.workers}) > 1:
        chart = over_workers(
            replace(kind, figures=[_INSERTS], keep=_is_sweep,
                    note="Mean over the repetitions at each number, with its 95 % interval; each dot is a"
                    " repetition."),
            _keep_few({name: subjects[name] for name in pooled}, places), places,
        )  # fmt: skip
        return chart and _add_left_out(chart, places)
    found, place = points.list_rate_bars(pooled, describe_doubts(subjects))
    if len(found) < 2:
        return None
    spec, note = draw_bars(rank(found), _name_tuned_rate(subjects), "repetition", places)
    return kind.make(spec, note, title=kind.title + (f", {place}" if place else ""))


def _times(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """How long each query took, or requests that were due at a rate."""
    rows = points.list_time_ranges(pool_samples(subjects), response=kind.figures == "At")
    if not rows:
        return None
    spec, log = draw_ranges(rows, kind.figures, places)
    return kind.make(
        spec, f"Mean over the repetitions. {PALER}" if is_matrix(rows) else kind.note, log
    )


def _clients(kind: Kind, subjects: Subjects, places: Places) -> Chart | None:
    """A bar for each client of each candidate, the lean path first."""
    found = [
        points.make_bar(f"{name}, {client}", figures[choose_columns(results).rate], name)
        for name, results in subjects.items()
        for client, figures in collect_figures(results).items()
    ]
    return kind.make(*draw_bars(found, RATE, places=places)) if found else None


def _time_candidates(subjects: Subjects) -> tuple[list[Timed], str]:
    note = (
        "All valid runs at each candidate's best number of workers, retries included. A request is a whole"
        " batch; at a given rate it counts from when it was due."
    )
    found = [
        runs.time_groups(name, [run.group for run in runs.list_best_runs(results)])
        for name, results in subjects.items()
    ]
    return [timed for timed in found if timed is not None], note


_DISK = Shown(
    "storage_bytes", "On disk, bytes", "bytes on disk", format_rate, "", "storage_events", form="~s"
)


def _list_campaign_kinds(required: Sequence[float]) -> dict[str, Kind]:
    """The charts of each step. `required`: rates that are to be held."""
    marked = dict.fromkeys(required, "required")
    return {
        "capacity": Kind(
            "capacity", _capacities, marked,
            "Mean over the repetitions of the highest rate that held within the limits; the line spans all"
            " intervals between the highest rate that held and the lowest that failed; each dot is a"
            " repetition.",
        ),
        "responses-over-rate": Kind(
            "response time over rate", _responses, required,
            "Each dot is a step of a search, the lines go through the medians of steps at about the same rate"
            " in all repetitions.",
        ),
        "rates": Kind("inserts per second", _rates, None),
        "clients": Kind("inserts per second by client", _clients, None),
        "levels": Kind(
            "rate and time over fill level", over_level,
            [
                Shown("inserts_per_s", RATE, "inserts/s", format_rate, x="level"),
                Shown("latency_p99_ms", "p99 of a request, ms", "ms", format_ms, "p99 ", "level",
                      HEIGHT // 2),
            ],
            _OVER_LEVELS, _is_level,
        ),
        "time": Kind(
            "throughput over time", timeline, runs.choose_middle,
            "Events acknowledged in each second of the valid run of each candidate whose rate is in the"
            " middle.",
        ),
        "responses": Kind(
            "response times", _times, "At",
            "Mean over the repetitions, and the range from the fastest to the slowest of them.",
        ),
        "queries": Kind(
            "query times", _times, "Query",
            "Mean over the repetitions, and the range from the fastest to the slowest of them.",
        ),
        "latency": Kind("latency of a request", distribution, ("the requests", _time_candidates)),
    }  # fmt: skip


def _keep_few(subjects: Subjects, places: Places) -> Subjects:
    """The candidates of which lines are drawn."""
    return {name: results for name, results in subjects.items() if places[name] < MOST_DRAWN}


def _add_left_out(chart: Chart, places: Places) -> Chart:
    left_out = len(places) - MOST_DRAWN
    if left_out <= 0:
        return chart
    said = format_count(left_out, "candidate is", "candidates are")
    return replace(chart, note=f"{chart.note} {said} left out.")


_LINES = ("responses-over-rate", "levels", "time", "latency")


def draw_campaign(
    steps: Mapping[str, Subjects], required_per_s: float | None
) -> tuple[list[Chart], list[Chart]]:
    """Every chart that the steps have data for: those that answer what was asked, and those of single runs.
    `required_per_s`: a rate that is to be held, if there is one."""
    names = list(dict.fromkeys(chain.from_iterable(steps.values())))
    places = {name: place for place, name in enumerate(names)}
    kinds = _list_campaign_kinds([required_per_s] if required_per_s else [])
    first: list[Chart | None] = []
    more: list[Chart | None] = []
    few: dict[str, Subjects] = {}
    for step, all_measured in steps.items():
        measured = {name: results for name, results in all_measured.items() if results}
        few[step] = _keep_few(measured, places)
        disturbed = any(
            run.marks for results in measured.values() for result in results for run in result.runs
        )
        for name, kind in kinds.items():
            title = "Capacity" if step == name == "capacity" else f"{step}: {kind.title}"
            own = replace(kind, title=title, name=name)
            chart = kind.template(own, few[step] if name in _LINES else measured, places)
            if chart is not None and name in _LINES:
                chart = _add_left_out(chart, places)
            single = name == "latency" or (name == "time" and not disturbed)
            (more if single else first).append(chart)
    for draw_all_steps in (draw_query_levels, draw_storage):
        chart = draw_all_steps(few, places)
        first.append(chart and _add_left_out(chart, places))
    # Pages name charts by their kind.
    numbered = [
        chart and replace(chart, kind=f"{number}-{chart.kind}", spec=resize(chart.spec, PAGE_WIDTH))
        for number, chart in enumerate([*first, *more], 1)
    ]
    of_first, of_more = numbered[: len(first)], numbered[len(first) :]
    return list(filter(None, of_first)), list(filter(None, of_more))


def draw_query_levels(steps: Mapping[str, Subjects], places: Places) -> Chart | None:
    """A panel for each query that a candidate was asked at several fill levels: how long it took."""
    asked: dict[str, dict[str, list[Row]]] = {}
    for measured in steps.values():
        for name, results in measured.items():
            for result in results:
                for entry in result.query_summary if result.fill_level else ():
                    times = asked.setdefault(entry.query, {}).setdefault(name, [])
                    times.append({"x": result.fill_level, "value": 1000 * entry.avg})
    panels = []
    for query, candidates in asked.items():
        found = {name: points.join_near(own, OVER_EVENTS.near) for name, own in candidates.items()}
        if any(len(groups) > 1 for groups in found.values()):
            shown = Shown(query, f"{query}, ms", "ms", format_ms, f"{query} ", height=HEIGHT // 2)
            panels.append(make_panel(found, shown, OVER_EVENTS))
    if not panels:
        return None
    note = _OVER_LEVELS
    if len(panels) > MOST_PANELS:
        note += f" The first {MOST_PANELS} of {len(panels)} queries."
    spec, log = draw_over(OVER_EVENTS, panels[:MOST_PANELS], places)
    kind = Kind("Query times over fill level", over_events, None, note, name="query-levels")
    return kind.make(spec, log=log)


def draw_storage(steps: Mapping[str, Subjects], places: Places) -> Chart | None:
    """Bytes on disk over the events in the database: for steps on growing data, or else for the step whose
    fill levels lie furthest apart."""

    def is_own(result: Result) -> bool:
        return not any(run.group.storage and run.group.storage.shared for run in result.writers)

    during = replace(_DISK, key="storage_during_bytes", x="storage_during_events")
    kind = Kind(
        "disk over fill level", over_events, [during, _DISK],
        "What the tables take on disk, all copies counted, with what is allocated ahead of events; mean over"
        " the repetitions, with its 95 % interval.",
        is_own, name="storage",
    )  # fmt: skip
    charts = {
        step: chart
        for step, measured in steps.items()
        if (chart := over_events(replace(kind, title=f"{step}: {kind.title}"), measured, places))
    }
    growing = [
        step
        for step in charts
        if any(result.by_fill_level for results in steps[step].values() for result in results)
    ]

    def find_span(step: str) -> float:
        events = [row["x"] for row in charts[step].spec["data"]["values"]]
        return float(max(events) - min(events))

    step = max(growing or charts, key=find_span, default=None)
    return charts[step] if step is not None else None


# --- the number of nodes --------------------------------------------------------------------------

MOST_SERIES = 7
"""The most series over the number of nodes."""


def find_scaling(
    step: str, nodes: Mapping[str, tuple[str, int | None]], measured: Subjects
) -> list[tuple[Chart, Table]]:
    """The step's rates and its times over the number of nodes; none unless a series has two numbers or more.
    `nodes`: candidate -> its series and its number of nodes."""
    known = {name: nodes[name] for name, results in measured.items() if results and nodes[name][1]}
    counts = Counter(series for series, _ in known.values())
    pooled = pool_samples({name: measured[name] for name in known if counts[known[name][0]] > 1})
    samples = [
        (*known[name], place, values)
        for name, places in pooled.items()
        for place, values in places.items()
        if place.response is None
    ]
    alone = len({place for _, _, place, _ in samples}) == 1
    scalings = []
    for times, unit, write in (
        (False, "Events/s", format_rate),
        (True, "Seconds", "{:,.3g}".format),
    ):
        found: dict[str, points.Groups] = {}
        for series, count, place, values in sorted(
            samples, key=lambda sample: (sample[0], sample[1] or 0)
        ):
            if place.has_times is times:
                name = series if alone else f"{series}, {place}"
                found.setdefault(name, []).append(
                    [{"x": count, "value": value} for value in values]
                )
        if not found:
            continue
        shown = Shown("", unit, unit.lower(), write)
        first = dict(list(found.items())[:MOST_SERIES])
        spec, log = draw_over(OVER_NODES, [make_panel(first, shown, OVER_NODES)])
        note = "Mean over the repetitions, with its 95 % interval where there are two or more."
        if len(found) > MOST_SERIES:
            note += f" {len(found) - MOST_SERIES} more are in the table."
        kind = Kind(f"{step} by number of nodes", over_workers, None, note,
                    name=f"nodes-{step}-{'times' if times else 'rates'}")  # fmt: skip
        scalings.append((kind.make(spec, log=log), _tabulate_scaling(found, shown, times)))
    return scalings


def _tabulate_scaling(found: Mapping[str, points.Groups], shown: Shown, times: bool) -> Table:
    """Each figure, how many times as fast it is as with the fewest nodes, and what share that is of as many
    times the nodes."""
    rows = []
    for name, groups in found.items():
        summaries = [
            (group[0]["x"], summarize([own["value"] for own in group])) for group in groups
        ]
        fewest, base = summaries[0]
        for count, summary in summaries:
            speed = base.avg / summary.avg if times else summary.avg / base.avg
            rows.append(
                [name, f"{count:,.0f}", shown.write(summary.avg), format_interval(summary.ci95, shown.write),
                 f"{speed:.2f}", f"{speed * fewest / count:.0%}"]
            )  # fmt: skip
    headers = ["Series", "Nodes", shown.title, "95% interval", "Times as fast", "Of linear"]
    return Table(headers, rows, left=("Series",))
