"""Results of searches: a capacity as steps and in words, a tuning as a table of combinations."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from simulator.contract import Measure
from simulator.units import format_bytes, format_count
from simulator.workloads.base import WorkloadOptions

from ..results.answers import Capacity, Tuning, compare_candidates, is_best_shown, mean
from ..results.columns import STEPS, Column, Tried, format_cost
from ..results.entries import list_entries
from ..results.figures import FIGURES, Form
from ..results.model import Result
from ..results.naming import find_changed_options, format_options, format_value
from ..results.summaries import find_offered_rate
from ..system.installation import program
from .ratios import format_factor, format_speed_interval
from .tables import (
    COST_HEADER,
    Table,
    describe_in_flight,
    format_rate,
    strike,
)

# --- capacity ----------------------------------------------------------------------------------------


def tabulate_capacities(names: Sequence[str], results: Sequence[Result]) -> Table:
    """The answers of several searches, a line each, without empty columns."""
    rows = []
    for name, result in zip(names, results, strict=True):
        capacity = result.capacity or Capacity(precision=0)
        at_least = "at least " if capacity.client_bound and capacity.events_per_s else ""
        rows.append(
            [
                name,
                at_least + _show(capacity.events_per_s, "{:,.10g}".format),
                _show(capacity.above_per_s, "{:,.10g}".format),
                "yes" if capacity.sure else "no",
                ", ".join(map(str, capacity.limits)) or "-",
                _show(capacity.devices, format_rate),
                _show(capacity.bytes_per_day, format_bytes),
                _show(capacity.events_per_s_per_cpu, format_rate),
                _show(capacity.events_per_cost, format_cost),
            ]
        )
    headers = [
        "Database (version)", "Capacity", "Lowest that failed", "Sure", "Limits", "Devices", "Disk/day",
        "Per CPU", COST_HEADER,
    ]  # fmt: skip
    filled = [name for n, name in enumerate(headers) if n < 5 or any(row[n] != "-" for row in rows)]
    return Table(headers, rows, left=("Database (version)", "Limits")).choose(filled)


def _show(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


_SHOWN = (Measure.P50, Measure.P99, Measure.P99_9, Measure.SERVICE_P99)
"""The insert measures in each table of steps."""


def tabulate_capacity(result: Result, terminal: bool) -> Table:
    """The steps in the order they ran: what was offered, and whether it held."""
    writers = {entry.group_run.run.run: entry for entry in list_entries(result.writers, result)}
    steps = result.capacity.steps if result.capacity else []
    limits = result.capacity.limits if result.capacity else []
    more = [limit for limit in limits if limit.query or limit.measure not in _SHOWN]

    def show(column: Column[Tried], tried: Tried) -> str:
        text = column.show(tried)
        is_struck = column.struck and not tried.entry.group.valid and text != "-"
        return strike(text, terminal) if is_struck else text

    rows = []
    for number, step in enumerate(steps):
        tried = Tried(number, step, writers[step.run])
        reasons = "; ".join(step.reasons)
        verdict = "holds" if step.holds else reasons
        if step.holds is None:
            verdict = f"no verdict; {reasons}" if reasons else "-"
        figures = [_show(step.figures.get(limit.name), limit.show) for limit in more]
        rows.append([*(show(column, tried) for column in STEPS), *figures, verdict])
    headers = [*(column.heading for column in STEPS), *(limit.name for limit in more), "Verdict"]
    return Table(headers, rows, left=("Verdict",), empty="no steps")


def describe_steps(result: Result) -> str:
    """What the steps' figures mean."""
    text = "Response times count from when a request was due, service times from when it was sent."
    warm_up_s = result.settings.load.warm_up_s
    return f"{text} No figure includes the first {warm_up_s:g} s (warm-up)." if warm_up_s else text


UNEVEN_SHARE = 0.01
"""From this share, a note says how far chance moved the offered rate from the requested one."""


def describe_capacity(result: Result) -> list[str]:
    """The answer, what it amounts to, and what held higher rates back: a line each."""
    capacity = result.capacity
    if capacity is None:
        return ["No capacity was found."]
    lines = [_describe_rate(capacity)]
    lines += [f"What broke: {capacity.why}."] if capacity.why else []
    rate = capacity.events_per_s
    if rate is not None:
        lines.append(_describe_meaning(capacity, result.cost_per_hour))
        numbers = {step.run for step in capacity.steps_at_answer}
        runs = [group_run for group_run in result.writers if group_run.run.run in numbers]
        offered = find_offered_rate(runs)
        if offered is not None and abs(offered / rate - 1) >= UNEVEN_SHARE:
            steps = format_count(len(runs), "step")
            lines.append(
                f"Because arrivals are random, {offered:,.0f} events/s were due in the {steps} at this"
                " rate."
            )
    if (found := capacity.bottleneck) is not None:
        closed = found.rate_per_s is None
        where = "in the closed loop" if closed else f"at {found.rate_per_s:,.10g} events/s"
        above = "" if rate is None else " above it"
        lines.append(f"Bottleneck{above} ({where}): {found.limit}: {found.evidence}.")
    return lines


def write_capacity_headline(capacity: Capacity | None) -> str:
    """The answer in a few words, for a list."""
    if capacity is None or (capacity.events_per_s is None and capacity.above_per_s is None):
        return "no capacity"
    low, high, limits = capacity.events_per_s, capacity.above_per_s, _list_limits(capacity)
    if low is None and not capacity.sure:
        return f"below {high:,.10g} events/s{limits}"
    if low is None:
        return f"no rate holds{limits}" + (" (client-bound)" if capacity.client_bound else "")
    if high is None or capacity.client_bound:
        return f"at least {low:,.10g} events/s{limits}"
    if not capacity.sure:
        return f"between {low:,.10g} and {high:,.10g} events/s{limits}"
    return f"{low:,.10g} events/s{limits}"


def _list_limits(capacity: Capacity) -> str:
    return " within " + ", ".join(map(str, capacity.limits)) if capacity.limits else ""


def _describe_rate(capacity: Capacity) -> str:
    low, high = capacity.events_per_s, capacity.above_per_s
    because = "" if capacity.sure else f"; {capacity.unsure_because}"
    if low is None and high is None:
        return f"No capacity was found{because}."
    if low is None:
        text = (
            f"No rate that was tried holds{_list_limits(capacity)}: not even {high:,.10g} events/s"
        )
        if not capacity.sure:  # lower rates may hold
            text = f"Capacity: below {high:,.10g} events/s{_list_limits(capacity)}"
        return f"{text}{_BUT_CLIENT if capacity.client_bound else ''}{because}."
    limits = _list_limits(capacity) or " without falling behind"
    if high is None:
        return f"Capacity: at least {low:,.10g} events/s{limits}: each rate that was tried holds{because}."
    if capacity.client_bound:
        text = f"Capacity: at least {low:,.10g} events/s{limits}. {high:,.10g} doesn't hold"
        return f"{text}{_BUT_CLIENT}{because}."
    if not capacity.sure:
        return f"Capacity: between {low:,.10g} and {high:,.10g} events/s{limits}{because}."
    return f"Capacity: {low:,.10g} events/s{limits}; {high:,.10g} doesn't hold."


_BUT_CLIENT = ", but the client was the limit there: more workers or CPUs may reach more"


def _describe_meaning(capacity: Capacity, cost_per_hour: float | None) -> str:
    parts = []
    if capacity.devices is not None and capacity.device_interval_s is not None:
        every = f"{capacity.device_interval_s:,.3g} s"
        parts.append(f"{capacity.devices:,.0f} devices that send an event every {every}")
    if capacity.bytes_per_day is not None:
        parts.append(f"{format_bytes(capacity.bytes_per_day)} a day on disk")
    if capacity.events_per_s_per_cpu is not None and capacity.database_cpus is not None:
        cpus = f"{capacity.database_cpus:g}"
        parts.append(
            f"{capacity.events_per_s_per_cpu:,.0f} events/s for each of the database's {cpus} CPUs"
        )
    if capacity.events_per_cost is not None:
        parts.append(
            f"{format_cost(capacity.events_per_cost)} per million events (at {cost_per_hour:g} an hour)"
        )
    return f"{capacity.events_per_s:,.10g} events/s mean {'; '.join(parts)}."


def describe_search(result: Result) -> str:
    """What the search was for, and how it ran."""
    capacity, settings = result.capacity, result.settings
    load = settings.load
    within = f" within {', '.join(settings.limits)}" if settings.limits else ""
    steps = len(capacity.steps) - 1 if capacity and capacity.steps else 0
    beside = (
        f" beside {format_count(settings.readers_beside, 'reader')}"
        f"{describe_in_flight(settings.reader_in_flight)}"
        if settings.readers_beside
        else ""
    )
    counts = settings.workers if isinstance(settings.workers, list) else [settings.readers]
    return (
        f"the highest rate of inserts{within} by {format_count(counts[0], 'worker')}{beside},"
        f" in {steps} steps of {load.duration_s or 0:g} s"
    )


# --- tuning ------------------------------------------------------------------------------------------


MOST_ROWS = 30
"""The most combinations in the table; those dropped first are only counted."""


def tabulate_tuning(result: Result) -> Table:
    """Each combination, best first: how far it got, and what it reached."""
    tuning = result.tuning
    if tuning is None:
        return Table([], [], empty="nothing was tried")
    ranked = tuning.rank_finalists()
    last = {trial.candidate: trial.stage for trial in tuning.trials}
    reached = {candidate: tuning.find_rates(candidate) for candidate in last}
    dropped = sorted(
        (candidate for candidate in last if candidate not in ranked),
        key=lambda candidate: (
            -last[candidate],
            -mean(reached[candidate]) if reached[candidate] else 0.0,
        ),
    )
    rows = []
    for candidate in [*ranked, *dropped][:MOST_ROWS]:
        place = []
        rates = reached[candidate]
        if candidate in ranked:
            rates = tuning.find_rates(candidate, last[candidate])
            first = "best" if is_best_shown(tuning, ranked) else "highest"
            place.append(first if candidate == ranked[0] else str(ranked.index(candidate) + 1))
        elif candidate in tuning.finalists:
            place.append("compared")
        if tuning.candidates[candidate] == tuning.defaults:
            place.append("defaults")
        if not reached[candidate]:
            own = [trial for trial in tuning.trials if trial.candidate == candidate]
            place += [reason for trial in own for reason in trial.reasons][-1:]
        rows.append(
            [
                *map(format_value, tuning.candidates[candidate].values()),
                f"{last[candidate]:,}",
                f"{len(rates):,}",
                Form.RATE.show(mean(rates) if rates else None),
                ", ".join(place) or "-",
            ]
        )
    unit = "Capacity, events/s" if tuning.limits else FIGURES["inserts_per_s"].heading
    names = [setting.name for setting in tuning.over]
    headers = [*names, "Stage", "Runs", unit, "Place"]
    return Table(headers, rows, left=("Place",), empty="nothing was tried")


def describe_trials(result: Result) -> str:
    """What the tuning tried."""
    tuning = result.tuning
    if tuning is None:
        return "nothing was tried"
    over = ", ".join(
        f"{setting.name} ({', '.join(map(format_value, setting.values))})"
        for setting in tuning.over
    )
    combinations = len({trial.candidate for trial in tuning.trials})
    return f"{combinations:,} combinations of {over}, in {len(tuning.trials):,} measurements"


def describe_tuning(result: Result) -> list[str]:
    """The best settings, how certain they are, and what each costs at its default: a line each."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return ["No best combination was found: the search didn't reach its comparison."]
    best = ranked[0]
    own = tuning.candidates[best]
    rate = format_rate(mean(tuning.find_rates(best, tuning.stages)))
    unit = "events/s within " + ", ".join(map(str, tuning.limits)) if tuning.limits else "inserts/s"
    name = format_options(own)
    lines = [f"Best: {name}: {rate} {unit}."]
    if not is_best_shown(tuning, ranked):
        lines = [f"No best is shown; {name} measured highest: {rate} {unit}."]
    others = {"the next": ranked[1]} if len(ranked) > 1 else {}
    default = _find(tuning, tuning.defaults)
    if default is not None and default in tuning.finalists and default not in ranked[:2]:
        others["the defaults"] = default
    for which, other in others.items():
        settings = format_options(tuning.candidates[other])
        difference = _describe_difference(tuning, best, other)
        lines.append(f"Compared with {which}, {settings}: {difference}.")
    if default == best:
        lines.append("These are the defaults.")
    # The cost of leaving each setting at its default, with the others at their best.
    for setting in tuning.over:
        value = format_value(setting.default)
        if own[setting.name] == setting.default:
            lines.append(f"{setting.name}: its default, {value}, is best.")
        else:
            cost = _describe_cost(tuning, best, {**own, setting.name: setting.default})
            lines.append(f"{setting.name} left at {value}: {cost}.")
    return lines


def _find(tuning: Tuning, settings: Mapping[str, Any]) -> int | None:
    return next((n for n, own in enumerate(tuning.candidates) if own == settings), None)


def _describe_difference(tuning: Tuning, candidate: int, base: int) -> str:
    ratio = compare_candidates(tuning, candidate, base, tuning.stages)
    if ratio is None:
        return "unknown, it has no figure"
    if ratio.interval is None:
        return f"{format_factor(ratio.value)} times as fast, from single runs"
    if ratio.is_void:
        return "can't be compared, since the runs vary too much"
    if not ratio.differs:
        word = "no difference shown" if ratio.alike else "undecided"
        return f"{word} (95 % interval {format_speed_interval(*ratio.interval)})"
    return f"{format_speed_interval(*ratio.interval)} (95 % interval)"


def _describe_cost(tuning: Tuning, best: int, settings: Mapping[str, Any]) -> str:
    """The cost of these settings instead of the best: from the comparison at the end or, if its winner wasn't
    the search's, from the last stage that both were in."""
    reset = _find(tuning, settings)
    if reset is None:
        return "not measured, since the search had another winner"
    compared = reset in tuning.finalists
    stages = [tuning.stages] if compared else range(tuning.stages - 1, 0, -1)
    ratios = (compare_candidates(tuning, best, reset, stage) for stage in stages)
    ratio = next(filter(None, ratios), None)
    if ratio is None:
        return "it gave no figure"
    if ratio.differs is False:
        return "no difference shown" if ratio.alike else "undecided"
    share = 1 - 1 / ratio.value
    if share <= 0:
        lost = "costs nothing"
    else:
        lost = f"costs {'more than 99%' if share > 0.99 else f'{share:.0%}'} of the rate"
    if ratio.interval:
        return lost
    return f"{lost}, from single runs{'' if compared else ' of the search'}"


def advise(result: Result) -> str:
    """The command line, and the lines for the config file."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return ""
    settings = tuning.candidates[ranked[0]]
    varied = {setting.name for setting in tuning.over}
    given = {
        name: value for name, value in find_changed_options(result).items() if name not in varied
    }
    words = [program(), "insert", "--target", result.target]
    workers = result.settings.workers or 1
    count = workers if isinstance(workers, int) else workers[0]
    if count > 1 and "workers" not in varied:
        words += ["--workers", str(count)]
    of_load, options = (
        {setting.name: settings[setting.name] for setting in tuning.over if setting.option is kind}
        for kind in (False, True)
    )
    flags = [(name, shlex.quote(format_value(given[name]))) for name in _GIVEN if name in given]
    flags += [
        ("workload-option", shlex.quote(f"{name}={format_value(given[name])}"))
        for name in WorkloadOptions.model_fields
        if name in given
    ]
    flags += [(name, format_value(value)) for name, value in of_load.items()]
    flags += [
        ("extra-option", shlex.quote(f"{name}={format_value(value)}"))
        for name, value in options.items()
    ]
    words += [word for name, value in flags for word in (f"--{name.replace('_', '-')}", value)]
    lines = ["", f"To use it: {' '.join(words)}"]
    default = _find(tuning, tuning.defaults)
    if default in ranked[1:]:
        ratio = compare_candidates(tuning, ranked[0], default, tuning.stages)
        if ratio is not None and ratio.differs is False:
            lines.insert(1, "It isn't shown to be faster than the defaults, so you may keep those.")
    if options:
        text = yaml.safe_dump(
            {"targets": {result.target: options}}, sort_keys=False, allow_unicode=True
        )
        lines += [
            "In config.yaml, instead of --extra-option:",
            *(f"  {line}" for line in text.splitlines()),
        ]
    return "\n".join(lines)


_GIVEN = ("workload", "batch", "in_flight", "primary_key", "tables", "prefill")
"""Options of `tune` besides the varied ones that change what is inserted and how."""


def write_tuning_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return "no combination found"
    rate = format_rate(mean(tuning.find_rates(ranked[0], tuning.stages)))
    unit = "events/s" if tuning.limits else "inserts/s"
    return f"{rate} {unit}: {format_options(tuning.candidates[ranked[0]])}"
