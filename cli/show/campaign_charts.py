"""The charts of a campaign: the repetitions of a candidate pooled, in one colour per candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from ..results.matrix import Measured, average_samples
from ..results.model import Result
from ..results.statistics import summarize_repetitions
from . import points, runs
from .bars import RATE, read_candidates_clients, read_capacities, read_rates
from .charts import (
    INSERTS,
    Kind,
    bars,
    distribution,
    is_level,
    is_sweep,
    over_events,
    over_level,
    over_rate,
    over_workers,
    ranges,
    timeline,
)
from .points import Shown, make_panel
from .runs import Timed
from .tables import Table, format_interval, format_ms, format_rate
from .templates import (
    OVER_EVENTS,
    OVER_NODES,
    Chart,
    draw_over,
)
from .vega import HEIGHT, Places, Row, resize

PAGE_WIDTH = 560
"""Width of a plot in pixels: a page of 1400 px fits two side by side."""
MOST_PANELS = 4
"""The most queries that are drawn over fill levels."""

_OVER_LEVELS = (
    "Mean over the repetitions at each level, with its 95 % interval. Each dot is a repetition."
)


def _rates(kind: Kind, subjects: Measured, places: Places) -> Chart | None:
    """A bar for each candidate, unless only one has a rate; with several worker counts, lines over these."""
    pooled = {
        name: {
            place: values
            for place, values in samples.items()
            if not (place.has_times or place.capacity or place.level is not None)
        }
        for name, samples in average_samples(subjects).items()
    }
    if len({place for samples in pooled.values() for place in samples if place.workers}) > 1:
        return over_workers(
            replace(kind, figures=[INSERTS], keep=is_sweep,
                    note="Mean over the repetitions at each worker count, with its 95 % interval. Each dot"
                    " is a repetition."),
            {name: subjects[name] for name in pooled}, places,
        )  # fmt: skip
    return bars(replace(kind, figures=partial(read_rates, pooled)), subjects, places)


def _time_candidates(subjects: Measured) -> tuple[list[Timed], str]:
    note = (
        "All valid runs at each candidate's best worker count, retries included. A request is a whole"
        " batch; at a given rate its time counts from when it was due."
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
    """The charts of each step. `required`: rates that the campaign requires."""
    return {
        "capacity": Kind("capacity", bars, partial(read_capacities, required=required)),
        "responses-over-rate": Kind(
            "response time over rate", over_rate, required,
            "Each dot is a step of a search. Lines connect the medians of steps at about the same rate over"
            " all repetitions.",
        ),
        "rates": Kind("inserts per second", _rates, None),
        "clients": Kind("inserts per second by client", bars, read_candidates_clients),
        "levels": Kind(
            "rate and time over fill level", over_level,
            [
                Shown("inserts_per_s", RATE, "inserts/s", format_rate, x="level"),
                Shown("latency_p99_ms", "p99 of a request, ms", "ms", format_ms, "p99 ", "level",
                      HEIGHT // 2),
            ],
            _OVER_LEVELS, is_level,
        ),
        "time": Kind(
            "throughput over time", timeline, runs.choose_middle,
            "Events acknowledged per second in each candidate's valid run of median rate.",
        ),
        "responses": Kind("response times", ranges, partial(points.list_time_ranges, response=True)),
        "queries": Kind("query times", ranges, partial(points.list_time_ranges, response=False)),
        "latency": Kind("latency of a request", distribution, ("the requests", _time_candidates)),
    }  # fmt: skip


def draw_campaign(
    steps: Mapping[str, Measured], required_per_s: float | None, names: Sequence[str] = ()
) -> tuple[list[Chart], list[Chart]]:
    """Every chart that the steps have data for: those that show the answer, and those of single runs.
    `required_per_s`: the required rate, if any. `names`: all candidates of the pages, which have the same
    order and look in each chart."""
    names = names or list(dict.fromkeys(chain.from_iterable(steps.values())))
    places = {name: place for place, name in enumerate(names)}
    kinds = _list_campaign_kinds([required_per_s] if required_per_s else [])
    first: list[Chart | None] = []
    more: list[Chart | None] = []
    for step, all_measured in steps.items():
        measured = {name: all_measured[name] for name in names if all_measured.get(name)}
        disturbed = any(
            run.marks for results in measured.values() for result in results for run in result.runs
        )
        for name, kind in kinds.items():
            title = "Capacity" if step == name == "capacity" else f"{step}: {kind.title}"
            own = replace(kind, title=title, name=name)
            chart = kind.template(own, measured, places)
            single = name == "latency" or (name == "time" and not disturbed)
            (more if single else first).append(chart)
    first += [draw(steps, places) for draw in (draw_query_levels, draw_storage)]
    # Pages refer to charts by their kind.
    numbered = [
        chart and replace(chart, kind=f"{number}-{chart.kind}", spec=resize(chart.spec, PAGE_WIDTH))
        for number, chart in enumerate([*first, *more], 1)
    ]
    of_first, of_more = numbered[: len(first)], numbered[len(first) :]
    return list(filter(None, of_first)), list(filter(None, of_more))


def draw_query_levels(steps: Mapping[str, Measured], places: Places) -> Chart | None:
    """A panel for each query that was measured at several fill levels of a candidate: how long it took."""
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


def draw_storage(steps: Mapping[str, Measured], places: Places) -> Chart | None:
    """Bytes on disk over the number of events in the database: for steps on growing data, or else for the
    step with the widest range of fill levels."""

    def is_own(result: Result) -> bool:
        return not any(run.group.storage and run.group.storage.shared for run in result.writers)

    during = replace(_DISK, key="storage_during_bytes", x="storage_during_events")
    kind = Kind(
        "disk over fill level", over_events, [during, _DISK],
        "Disk space of the tables: mean over the repetitions, with its 95 % interval. Replicas and space"
        " allocated in advance are included.",
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
"""The most series drawn over the number of nodes."""


def find_scaling(
    step: str, nodes: Mapping[str, tuple[str, int | None]], measured: Measured
) -> list[tuple[Chart, Table]]:
    """The step's rates and times over the number of nodes; none unless a series has two node counts or more.
    `nodes`: candidate -> its series and its number of nodes."""
    known = {name: nodes[name] for name, results in measured.items() if results and nodes[name][1]}
    counts = Counter(series for series, _ in known.values())
    pooled = average_samples({name: measured[name] for name in known if counts[known[name][0]] > 1})
    samples = [
        (*known[name], place, values)
        for name, places in pooled.items()
        for place, (values, _) in places.items()
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
    """Each figure, its speed-up over the fewest nodes, and that speed-up as a share of linear scaling."""
    rows = []
    for name, groups in found.items():
        summaries = [
            (group[0]["x"], summarize_repetitions([own["value"] for own in group]))
            for group in groups
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
