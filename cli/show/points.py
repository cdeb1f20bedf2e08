"""Points and bars of several runs, from the table of observations. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from simulator.contract import MIN_ACHIEVED, RunLimit
from simulator.units import format_count

from ..results.answers import Capacity
from ..results.columns import format_cost
from ..results.figures import FIGURES, LIMITED
from ..results.matrix import Measured, average_samples
from ..results.model import Result
from ..results.naming import format_value
from ..results.observations import Observation, observe
from ..results.statistics import count_events_per_cost, summarize, summarize_repetitions
from ..results.summaries import group_executions
from .bars import Bar
from .tables import format_ms
from .templates import Axis, Panel
from .vega import HEIGHT, Row, list_series


@dataclass(frozen=True)
class Shown:
    """A figure in a panel of lines."""

    key: str
    """In the registry of figures."""
    title: str
    """The vertical axis's."""
    unit: str
    write: Callable[[float], str]
    said: str = ""
    """The words before a value in a text."""
    x: str = "workers"
    """The horizontal axis: `workers`, `level`, or a figure."""
    height: int = HEIGHT
    form: str | None = None
    factor: float = 1.0
    most: bool = False
    """Whether the highest of several runs is shown instead of their mean."""
    log: bool = True
    """Whether its axis may be logarithmic."""
    limits: Mapping[float, str] = field(default_factory=dict)


Groups = list[list[Row]]
"""Where (`x`) and how much (`value`), grouped by the point that they share."""


def gather(
    subjects: Measured, shown: Shown, axis: Axis, keep: Callable[[Result], bool]
) -> dict[str, Groups]:
    """A figure's values in the valid runs of writers, each repetition's together. Steps on growing data share
    a point with the same step of other repetitions, others with those at about the same place. `keep`: which
    results to include."""
    figures = [FIGURES[key] for key in (shown.key, shown.x) if key in FIGURES]
    found: dict[str, Groups] = {}
    for name, results in subjects.items():
        by_step: dict[int, list[Row]] = {}
        loose: list[Row] = []
        for result in filter(keep, results):
            own: dict[float, list[float]] = {}
            for row in observe(result, name, figures=figures, parts=False):
                x = row.figures.get(shown.x) if shown.x in FIGURES else getattr(row, shown.x)
                value = row.figures.get(shown.key)
                if value is None or x is None or not row.valid or not is_whole(row):
                    continue
                if result.by_fill_level and shown.x != "workers":
                    point = {"x": x, "value": shown.factor * value, "workers": row.workers}
                    by_step.setdefault(row.run or 0, []).append(point)
                else:
                    own.setdefault(x, []).append(shown.factor * value)
            for x, values in own.items():
                loose += [
                    {"x": x, "value": value}
                    for value in (values if len(results) == 1 else [fmean(values)])
                ]
        groups = [by_step[run] for run in sorted(by_step)] + join_near(loose, axis.near)
        if groups:
            found[name] = groups
    return found


def is_whole(row: Observation) -> bool:
    """Whether it is a figure of the writers as a whole."""
    return row.group == "writers" and row.run is not None


def join_near(points: Iterable[Row], near: float) -> list[list[Row]]:
    """The points in groups: within each, `x` is at most `near` times the first one's."""
    groups: list[list[Row]] = []
    for point in sorted(points, key=lambda point: float(point["x"])):
        if groups and point["x"] <= near * groups[-1][0]["x"]:
            groups[-1].append(point)
        else:
            groups.append([point])
    return groups


def make_panel(
    found: Mapping[str, Groups], shown: Shown, axis: Axis, subjects: Measured | None = None
) -> Panel:
    """A point at the mean of each group, with its 95 % interval; each repetition is a dot. `subjects`: the
    results, if they are single ones."""
    single = subjects is not None and all(len(results) == 1 for results in subjects.values())
    sample = "run" if single else "repetition"
    rows: list[Row] = []
    samples: list[Row] = []
    bars: list[Bar] = []
    for name, groups in found.items():
        for group in groups:
            x, values = fmean(own["x"] for own in group), [own["value"] for own in group]
            summary = summarize(values) if single else summarize_repetitions(values)
            value = summary.max if shown.most else summary.avg
            interval = None if shown.most else summary.ci95
            low, high = interval or (value, value)
            at = axis.say(x)
            if shown.x == "level":
                at = f"{format_count(group[0]['workers'], 'worker')}, {at}"
            lines = [f"{at}: {shown.said}{shown.write(value)} {shown.unit}"]
            if interval:
                lines.append(f"95 % interval {shown.write(low)} to {shown.write(high)}")
            if summary.runs > 1:
                middle = "" if shown.most else f", median {shown.write(summary.median)}"
                lines.append(
                    f"{'the most of ' * shown.most}{format_count(summary.runs, sample)}{middle}"
                )
            cost = subjects[name][0].cost_per_hour if subjects else None
            if cost and shown.key == "inserts_per_s":
                paid = format_cost(count_events_per_cost(value, cost))
                lines.append(f"{paid} per million events")
            text = "\n".join([name, *lines])
            rows.append(
                {"series": name, "x": x, "value": value, "low": low, "high": high, "text": text}
            )
            bars.append(Bar(name, value, interval, [] if shown.most else values, name))
            for own in group if not single and len(group) > 1 else ():
                said = f"{shown.said}{shown.write(own['value'])} {shown.unit}"
                text = f"{name}\none {sample}, {axis.say(own['x'])}: {said}"
                samples.append({"series": name, **own, "text": text})
    return Panel(
        shown.title, rows, samples, shown.limits, shown.height, shown.form, shown.log, bars
    )


# --- steps of searches ----------------------------------------------------------------------------

PERCENTILES = {"p50": "p50", "p99": "p99", "p99_9": "p99.9"}
ACHIEVED = "Achieved, % of what was due"
KEPT_UP = 100 * MIN_ACHIEVED
NEAR_RATE = 1.15
"""Rates within this factor share a point of a line: each repetition searches at its own rates."""


@dataclass(frozen=True)
class Steps:
    """The valid steps of searches, at a rate each."""

    rows: Mapping[str, list[Row]]
    """What was measured (a percentile, the figure of a limit, the achieved share) -> a row for each step."""
    limits: Mapping[str, RunLimit]
    """The limits of all searches, each once, by its label."""
    binding: RunLimit | None
    """The limit that most searches missed at their lowest failing rate."""
    under_way: int = 0
    """Steps that achieved less than `KEPT_UP` but weren't saturated: the rest was in flight, or chance."""

    def draw(
        self, title: str, parts: Sequence[str], near: float = 1.0, height: int = HEIGHT // 2
    ) -> Panel:
        """Each step as a dot, and a line through the medians of steps at about the same rate. Each of several
        `parts` is a series."""
        samples = [
            row | {"series": PERCENTILES[part]} if len(parts) > 1 else row
            for part in parts
            for row in self.rows.get(part, ())
        ]
        medians: list[Row] = []
        dots: list[Row] = []
        for name in list_series(samples):
            for own in join_near([row for row in samples if row["series"] == name], near):
                x, value = (median(row[key] for row in own) for key in ("x", "value"))
                text = f"{name}\n{len(own)} steps at about {x:,.10g} events/s: median {format_ms(value)}"
                text = own[0]["text"] if len(own) == 1 else text
                medians.append({"series": name, "x": x, "value": value, "text": text})
                dots += own if len(own) > 1 else []
        lines = {
            limit.at_most * (1 if limit.measure.is_time else 100): text
            for text, limit in self.limits.items()
            if limit.name in parts
        }
        if title == ACHIEVED:
            return Panel(title, medians, dots, {KEPT_UP: ""}, height, log=False)
        return Panel(title, medians, dots, lines, height)

    def list_panels(self, alone: bool) -> list[Panel]:
        """Percentiles in one panel for a single search, otherwise in one each; the figures of other limits;
        and the achieved share."""
        panels = [
            self.draw(f"Response {title}, ms", [part])
            for part, title in PERCENTILES.items()
            if part in self.rows
        ]
        if alone:
            panels = [self.draw("Response time, ms", list(PERCENTILES))]
        others = {
            limit.name: limit for limit in self.limits.values() if limit.name not in PERCENTILES
        }
        panels += [
            self.draw(name_limit(limit), [name])
            for name, limit in others.items()
            if name in self.rows
        ]
        achieved = self.draw(ACHIEVED, [ACHIEVED])
        if alone:
            # It belongs to no series.
            for row in (*achieved.rows, *achieved.samples):
                row["series"] = "p50"
        panels.append(achieved)
        # The binding limit comes first, and large.
        bound = name_limit(self.binding) if self.binding else panels[0].title
        first = next((panel for panel in panels if panel.title == bound), panels[0])
        return [replace(first, height=HEIGHT), *(panel for panel in panels if panel is not first)]

    def draw_binding(self) -> Panel:
        """The figure of the binding limit, over the rates of all repetitions."""
        part, title = "p99", "Response p99, ms"
        if self.binding is not None:
            part, title = self.binding.name, name_limit(self.binding)
        return self.draw(title, [part], NEAR_RATE, HEIGHT)


def name_limit(limit: RunLimit) -> str:
    """The figure it limits, with its unit."""
    heading = LIMITED[limit.measure].heading if limit.measure in LIMITED else str(limit.measure)
    text = f"Response {heading}" if limit.query is None else f"{limit.query} {heading}"
    return f"{text}, {'ms' if limit.measure.is_time else '%'}"


def read_steps(subjects: Measured) -> Steps:
    """The steps of all searches among the results."""
    rows: dict[str, list[Row]] = {}
    limits: dict[str, RunLimit] = {}
    broken: Counter[str] = Counter()
    under_way = 0
    keys = [*(f"latency_{part}_ms" for part in PERCENTILES), "due", "achieved", "saturated"]
    figures = [FIGURES[key] for key in keys]
    for name, answer, result in list_searches(subjects):
        steps = {step.run: step for step in answer.steps if step.rate_per_s is not None}
        limits |= {str(limit): limit for limit in answer.limits}
        broken.update(str(limit) for limit in answer.limits if limit.name in [*answer.broken][:1])
        for row in observe(result, name, figures=figures, parts=False):
            step, known = steps.get(row.run or 0), row.figures
            if not (step and row.valid and is_whole(row)) or not {"due", keys[0]} <= known.keys():
                continue
            found = {
                part: (f"response time {title}", known[key], " ms")
                for (part, title), key in zip(PERCENTILES.items(), keys, strict=False)
                if key in known
            }
            share = 100 * known["achieved"] / known["due"] if known["due"] else 100.0
            is_saturated = known.get("saturated")
            under_way += share < KEPT_UP and not is_saturated
            unit = f" % of what was due{', saturated' * bool(is_saturated)}"
            found[ACHIEVED] = ("achieved", share, unit)
            for limit in answer.limits:
                value = step.figures.get(limit.name)
                if value is not None:
                    factor, unit = (1, " ms") if limit.measure.is_time else (100, " %")
                    found.setdefault(limit.name, (limit.name, factor * value, unit))
            held = "holds" if step.holds else "doesn't hold"
            for part, (said, value, unit) in found.items():
                shown = f"{value:.1f}" if part == ACHIEVED else format_ms(value)
                text = f"{name}\n{step.rate_per_s:,.10g} events/s: {held}\n{said}: {shown}{unit}"
                rows.setdefault(part, []).append(
                    {"series": name, "x": step.rate_per_s, "value": value, "text": text}
                )
    binding = max(limits, key=lambda text: broken[text], default=None)
    return Steps(rows, limits, limits[binding] if binding else None, under_way)


def list_searches(subjects: Measured) -> list[tuple[str, Capacity, Result]]:
    """Name, answer and result of each search."""
    return [
        (name, result.capacity, result)
        for name, results in subjects.items()
        for result in results
        if result.capacity is not None
    ]


# --- ranges ---------------------------------------------------------------------------------------

_AFTER_FIRST = "the executions after each worker's first"
_ONLY_FIRST = "the first executions of queries that ran only once"


def list_query_ranges(subjects: Measured) -> tuple[list[Row], str, str]:
    """A row for each query of each result, the title of the rows, and which executions count."""
    rows: list[Row] = []
    counted: set[str] = set()
    for name, (result,) in subjects.items():
        executions = group_executions(result.asked)
        firsts = {query for query, times in executions.items() if not times.warm}
        for entry in result.query_summary:
            row = _make_range(
                name, entry.query, *(1000 * value for value in (entry.avg, entry.min, entry.max))
            )
            row["text"] += f" in {format_count(entry.runs, 'execution')}"
            if entry.cold is not None and entry.query not in firsts:
                row["text"] += f"\nthe first time {format_ms(1000 * entry.cold)} ms"
            counted.add(_ONLY_FIRST if entry.query in firsts else _AFTER_FIRST)
            rows.append(row)
    return rows, "Query", f"of {', or '.join(sorted(counted))}"


def list_time_ranges(subjects: Measured, response: bool) -> tuple[list[Row], str, str]:
    """A row for each query of each candidate or, for `response`, each step with requests at a given rate."""
    rows = []
    # Times of queries are in seconds.
    factor = 1 if response else 1000
    for name, places in average_samples(subjects).items():
        for place, (values, mean) in places.items():
            if place.has_times and (place.response is not None) is response:
                ends = (factor * end for end in (mean, min(values), max(values)))
                rows.append(_make_range(name, str(place), *ends))
    return rows, "Requests" if response else "Query", "over the repetitions"


def _make_range(name: str, at: str, mean: float, low: float, high: float) -> Row:
    text = f"{name}\n{at}: mean {format_ms(mean)} ms\n{format_ms(low)} to {format_ms(high)} ms"
    return {"series": name, "at": at, "value": mean, "low": low, "high": high, "text": text}


# --- settings -------------------------------------------------------------------------------------


def list_cells(
    subjects: Measured,
) -> tuple[list[Row], list[tuple[str, list[str]]], Sequence[str]] | None:
    """For a single tuning, the highest rate for each pair of values of the two settings that matter most; the
    settings and their values; and the names of all settings. None without rates."""
    tunings = [
        result.tuning for results in subjects.values() for result in results if result.tuning
    ]
    tuning = tunings[0] if len(tunings) == 1 else None
    if tuning is None or not any(trial.rate_per_s for trial in tuning.trials):
        return None
    by_name = {setting.name: setting for setting in tuning.over}
    names = list(tuning.weigh_settings())[:2]
    over = [by_name[name] for name in names]
    rows: list[Row] = []
    for x in over[0].values:
        for y in over[1].values if len(over) > 1 else [None]:
            settings = dict(zip(names, (x, y), strict=False))
            rates = [
                trial.rate_per_s
                for trial in tuning.trials
                if trial.rate_per_s
                and settings.items() <= tuning.candidates[trial.candidate].items()
            ]
            if rates:
                place = ", ".join(
                    f"{name}={format_value(value)}" for name, value in settings.items()
                )
                rows.append(
                    {
                        "x": format_value(x), "y": format_value(y), "shade": max(rates), "value": max(rates),
                        "label": _shorten(max(rates)), "text": f"{place}\n{max(rates):,.0f}",
                    }
                )  # fmt: skip
    sides = [(setting.name, list(map(format_value, setting.values))) for setting in over]
    return rows, sides if len(sides) > 1 else [*sides, ("", ["-"])], list(by_name)


def _shorten(rate: float) -> str:
    """Short enough for a cell: `1.23M`, `456k`, `78`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"
