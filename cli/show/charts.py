"""The kinds of charts: each is a template, the figures it shows, and the results it applies to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simulator.units import format_count

from ..results.matrix import Measured
from ..results.model import Result
from ..results.naming import NamedResult
from . import points, runs
from .bars import (
    MILLISECONDS,
    RATE,
    Bars,
    draw_bars,
    name_tuned_rate,
    rank,
    read_answers,
    read_bars,
    read_clients,
    read_inserts,
    read_queries,
    read_tunings,
    wrap_label,
)
from .points import Shown, gather, make_panel, read_steps
from .runs import Timed
from .templates import (
    LOG,
    OVER_EVENTS,
    OVER_LEVEL,
    OVER_RATE,
    OVER_WORKERS,
    PALER,
    Axis,
    Chart,
    Panel,
    draw_distribution,
    draw_matrix,
    draw_over,
    draw_ranges,
    draw_spans,
    draw_timeline,
    is_matrix,
)
from .vega import HEIGHT, MOST_TOGETHER, PHASES, Places, Row, find_label_step


@dataclass(frozen=True)
class Kind:
    """A kind of chart: which figures a template shows, for which results."""

    title: str
    template: Callable[[Kind, Measured, Places], Chart | None]
    figures: Any
    """The figures it takes from the observations, or a function that reads what a result keeps per second."""
    note: str = ""
    keep: Callable[[Result], bool] = lambda result: True
    """The results it applies to."""
    name: str = ""

    def make(
        self,
        spec: Row,
        note: str = "",
        log: bool = False,
        title: str = "",
        remarks: Sequence[str] = (),
    ) -> Chart:
        """The chart of this kind; `note` and `title` replace its own."""
        note = note or self.note
        note = f"{note.removesuffix('.')}{LOG}." if log else note
        return Chart(self.name, title or self.title, note, spec, remarks)


# --- the templates on results ---------------------------------------------------------------------


def _over(axis: Axis, kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """Lines over an axis; bars if there is a single worker count."""
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
    remarks = runs.list_bound(subjects) if kind.figures[0].most else ()
    counts = {row["x"] for panel in panels.values() for row in panel.rows}
    if axis is not OVER_WORKERS or len(counts) > 1:
        spec, log = draw_over(axis, list(panels.values()), places)
        return kind.make(spec, log=log, remarks=remarks)
    ((unit, panel),) = panels.items()
    alike = [replace(bar, series="") for bar in rank(panel.bars)]
    spec, note = draw_bars(alike, unit, limits=panel.limits)
    title = f"{kind.title.removesuffix(' by number of workers')} with {axis.say(counts.pop())}"
    return kind.make(
        spec, kind.note if kind.figures[0].most else note, title=title, remarks=remarks
    )


over_workers, over_level = partial(_over, OVER_WORKERS), partial(_over, OVER_LEVEL)
over_events = partial(_over, OVER_EVENTS)


def describe_saturation(steps: points.Steps) -> str:
    """What the achieved share says about a step, and where it says nothing."""
    text = f"A step below {points.KEPT_UP:.0f} % of what was due is saturated and doesn't hold"
    if not steps.under_way:
        return f"{text}."
    several = format_count(steps.under_way, "step")
    return f"{text}, except {several} whose remaining requests were in flight at the end, or within chance."


def over_rate(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """Each step of searches over its rate, with the achieved share below; for candidates, only the figure of
    the binding limit. `kind.figures`: the required rates of candidates."""
    steps = read_steps(subjects)
    if not steps.rows:
        return None
    found = [answer.events_per_s for _, answer, _ in points.list_searches(subjects)]
    across, word = [rate for rate in found if rate and len(found) == 1], "capacity"
    panels = steps.list_panels(alone=len(found) == 1)
    if kind.figures is not None:
        across, word, panels = kind.figures, "required rate", [steps.draw_binding()]
    spec, _ = draw_over(OVER_RATE, panels, places, across)
    remarks = ["Response times count from when a request was due; invalid steps are left out."]
    if any(panel.limits for panel in panels):
        remarks.insert(0, "Dashed: the limit" + (f", and the {word}." if across else "."))
    if kind.figures is None:
        remarks.insert(1, describe_saturation(steps))
    return kind.make(spec, remarks=remarks)


def bars(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """A bar for each figure, in the order found."""
    found: Bars = kind.figures(subjects)
    if not found.bars:
        return None
    spec, note = draw_bars(found.bars, found.unit, found.sample, places, found.limits)
    return kind.make(spec, found.note or note, title=kind.title + found.title)


def ranges(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """Ranges of times, from fastest to slowest; with many series, a matrix of their means."""
    rows, heading, counted = kind.figures(subjects)
    if not rows:
        return None
    spec, log = draw_ranges(rows, heading, places)
    note = f"Mean {counted}, and the range from fastest to slowest."
    return kind.make(spec, f"Mean {counted}. {PALER}" if is_matrix(rows) else note, log)


def distribution(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """Times over the percentiles: curves where every series has its histogram."""
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


def timeline(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """What happened in each second, for one run of each result."""
    examples = kind.figures(subjects)
    panels, about = runs.list_panels(examples)
    if not panels:
        return None
    about += [_SLOWEST]
    if len(examples) > MOST_TOGETHER:
        panels, about = panels[:1], []
    own = [run for _, run in examples]
    warm_ups = sorted({run.group.warm_up_s for run in own if run.group.warm_up_s})
    marks = [mark for run in own for mark in run.run.marks]
    gaps = runs.list_gaps(examples)
    spec = draw_timeline(panels, marks, gaps, warm_ups, places)
    remarks = runs.describe_disturbances(examples)
    if marks:
        shown = "grey is" if len({gap.series for gap in gaps}) < 2 else "“no answer” means"
        remarks.append(
            f"Each solid line is a disturbance of the database; {shown} the longest time after it without"
            " an acknowledgement."
        )
    if warm_ups:
        remarks.append(
            "The time before the dashed line is warm-up, which no other figure includes."
        )
    remarks += [*about, _LAST_SECOND]
    if any(len(run.group.timeline) > runs.MOST_POINTS for run in own):
        remarks.append("Each point is the mean of several seconds.")
    note = kind.note.format(runs.describe_places(subjects))
    return kind.make(spec, note, remarks=remarks)


_SLOWEST = "The slowest worker is the one with the fewest events per second."
_LAST_SECOND = "An incomplete last second is left out."


def spans(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
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


def matrix(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """The settings of a tuning."""
    found = kind.figures(subjects)
    if found is None:
        return None
    rows, sides, names = found
    unit = name_tuned_rate(subjects)
    unit = unit[0].lower() + unit[1:]
    others = ", ".join(name for name in names if name not in dict(sides))
    whatever = f", with the best of {others}" if others else ""
    return kind.make(draw_matrix(rows, *sides), kind.note.format(unit, whatever))


# --- the kinds of `plot` --------------------------------------------------------------------------

MOST_QUERIES = 7
"""The most queries in one chart: with more, the curves look alike."""


def _time_requests(subjects: Measured) -> tuple[list[Timed], str]:
    note = (
        f"Of the run with the highest p99 {runs.describe_places(subjects)}, retries included. A request is a"
        " whole batch."
    )
    if any(run.group.offered for (result,) in subjects.values() for run in result.writers):
        note += (
            " At a given rate (open loop), the response time counts from when the request was due."
        )
    found = [runs.time_groups(name, [run.group]) for name, run in runs.choose_slowest(subjects)]
    return [timed for timed in found if timed is not None], note


def _time_queries(subjects: Measured) -> tuple[list[Timed], str]:
    timed, note = runs.time_queries(subjects), "All valid runs together."
    if len(timed) > MOST_QUERIES:
        note += f" The {MOST_QUERIES} with the highest p99 of {len(timed)}."
    if any(run.group.offered for (result,) in subjects.values() for run in result.readers):
        note += " At a given rate, the response time counts from when the query was due."
    return timed[:MOST_QUERIES], note


def is_level(result: Result) -> bool:
    """Whether its runs are steps on growing data."""
    return result.by_fill_level


def is_sweep(result: Result) -> bool:
    """Whether its runs go as fast as they can, at several worker counts."""
    return result.command in ("insert", "mixed") and not result.by_fill_level


INSERTS = Shown("inserts_per_s", RATE, "inserts/s", "{:,.1f}".format)
_BOUND = {80.0: "client-bound from here on"}

KINDS: dict[str, Kind] = {
    "workers": Kind(
        "Throughput by number of workers", over_workers, [INSERTS],
        "Mean over the valid runs of each worker count, with its 95 % interval (Student's t).",
        is_sweep,
    ),
    "fill-level": Kind(
        "Throughput by fill level", over_level, [replace(INSERTS, x="level")],
        "One run at each level: the variation from run to run is unknown.", is_level,
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
        "Disk space of the tables after each step, including replicas and space allocated in advance. The"
        " last panel shows what a step added ÷ its own events, where that is much more than the database"
        " allocates at a time.",
        is_level,
    ),
    "queries": Kind("Query times", ranges, points.list_query_ranges),
    "rate": Kind(
        "Response time over rate", over_rate, None,
        "Each dot is a step of the search, the lines connect their medians.",
    ),
    "tuning": Kind(
        "Effect of settings", matrix, points.list_cells,
        "The highest {} with each pair of values{}. Combinations that were dropped early had only a short"
        " run. The two settings shown matter most.",
    ),
    "clients": Kind("Throughput by client", bars, read_clients),
    "client-cpu": Kind("CPU of each client", bars, partial(read_clients, cpu=True)),
    "time": Kind(
        "Throughput over time", timeline, runs.choose_examples,
        "Events acknowledged per second in the slowest valid run {}.",
    ),
    "latency": Kind("Latency of a request", distribution, ("the requests", _time_requests)),
    "query-latency": Kind("How long queries took", distribution, ("the queries", _time_queries)),
    "client": Kind(
        "CPU use of the client", over_workers,
        [Shown("client_cpu_share", "Client CPU, % of a core per worker", "%", "{:.2f}".format,
               factor=100, most=True, log=False, limits=_BOUND)],
        "CPU time of the workers ÷ (workers × window), for the busiest run at each worker count. A busy"
        " client measures itself, not the database.",
    ),
    "phases": Kind(
        "Phases of a run", spans, runs.list_phases,
        "From starting collector and workers to removing them. The phase “run” contains the measured window.",
    ),
}  # fmt: skip
"""All kinds of chart of `plot`, the most telling first."""

MOST_BARS = 10
"""The most bars in the chart of the answer, which should be visible without scrolling."""
_TALLEST_PX = 270

_INSERTS_OF = partial(read_bars, read=read_inserts, best=True)
_ANSWERS = {
    "capacities": Kind("Capacity", bars, read_answers),
    "inserts": Kind("Insert throughput", bars, _INSERTS_OF),
    "mixed runs": Kind("Insert throughput with readers", bars, _INSERTS_OF),
    "fill levels": Kind("Insert throughput by fill level", bars, _INSERTS_OF),
    "queries": Kind(
        "Query times", bars,
        partial(read_bars, read=read_queries, unit=MILLISECONDS, at_first=True),
    ),
    "tunings": Kind("Throughput with the best settings", bars, read_tunings),
    "clients": Kind("Throughput by client", bars, read_clients),
}  # fmt: skip
"""Kind of result -> the chart of its answer."""
_IN_ORDER = ("queries", "clients")
"""Kinds in which the bars of one result stay together, unranked."""


def _as_subjects(results: Sequence[NamedResult]) -> Measured:
    return {named.name: [named.result] for named in results}


def draw_answer(results: Sequence[NamedResult]) -> Chart | None:
    """The chart of the main answer: the first of capacity, inserts, mixed runs, fill levels, queries, tunings
    and clients that was measured. Of several results each shows its best, fastest first."""
    for kind, row in _ANSWERS.items():
        subjects = _as_subjects([named for named in results if named.result.kind == kind])
        found: Bars = row.figures(subjects)
        if found.bars:
            shown = found.bars if len(subjects) == 1 or kind in _IN_ORDER else rank(found.bars)
            # Names of several lines leave room for fewer bars on a screen.
            lines = max(len(wrap_label(bar.name)) for bar in shown[:MOST_BARS])
            most = min(MOST_BARS, _TALLEST_PX // find_label_step(lines))
            spec, note = draw_bars(shown[:most], found.unit)
            if len(shown) > most:
                note = f"{note} {len(shown) - most:,} more are in the tables below."
            return Chart("answer", row.title, note, spec)
    return None


def draw(kind: str, results: Sequence[NamedResult]) -> Chart | None:
    """The chart of this kind; None if these results have no data for it."""
    row = replace(KINDS[kind], name=kind)
    return row.template(row, _as_subjects(results), {})


def draw_all(results: Sequence[NamedResult]) -> list[Chart]:
    """Every chart that these results have data for."""
    return [chart for kind in KINDS if (chart := draw(kind, results)) is not None]


def name_sources(kind: str, named: Sequence[NamedResult]) -> list[str]:
    """A sentence for each source of results in a chart that this tool didn't measure. The chart of the answer
    has them in the text next to it."""
    if kind not in KINDS:
        return []
    sources = dict.fromkeys(
        one.result.source for one in named if one.result.source and draw(kind, [one]) is not None
    )
    return [f"Not measured by this tool: {source}." for source in sources]
