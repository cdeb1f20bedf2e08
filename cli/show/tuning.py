"""A tuning as a table of its combinations, in words, and as the lines to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from simulator.workloads.base import WorkloadOptions

from ..results.answers import Tuning, compare_candidates, is_best_shown, mean
from ..results.model import Result
from ..results.naming import find_changed_options, format_options, format_value
from ..system.installation import program
from .ratios import format_factor, format_speed_interval
from .tables import Table, format_rate

MOST_ROWS = 30
"""Combinations in the table; those that went out first are counted."""


def tabulate_tuning(result: Result) -> Table:
    """Each combination, the best first: how far it came, and what it reached."""
    tuning = result.tuning
    if tuning is None:
        return Table([], [])
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
                format_rate(mean(rates)) if rates else "-",
                ", ".join(place) or "-",
            ]
        )
    unit = "Capacity, events/s" if tuning.limits else "Inserts/s"
    names = [setting.name for setting in tuning.over]
    return Table([*names, "Stage", "Runs", unit, "Place"], rows, left=("Place",))


def describe_trials(result: Result) -> str:
    """What was tried."""
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
    """What suits, how sure that is, and what each setting costs at its default: a line each."""
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
    # What it costs to leave each setting at its default, with the others as they were found.
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
    if not ratio.differs:
        word = "no difference shown" if ratio.alike else "undecided"
        return f"{word} (95 % interval {format_speed_interval(*ratio.interval)})"
    return f"{format_speed_interval(*ratio.interval)} (95 % interval)"


def _describe_cost(tuning: Tuning, best: int, settings: Mapping[str, Any]) -> str:
    """What it costs to have these settings instead of the best: by the comparison at the end; or if that had
    another winner than the search, by the last stage of the search that both were in."""
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
    """The command line and the lines of the config file to use."""
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
"""Options of `tune` that change what is inserted and how, besides those that are varied."""


def write_tuning_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return "no combination found"
    rate = format_rate(mean(tuning.find_rates(ranked[0], tuning.stages)))
    unit = "events/s" if tuning.limits else "inserts/s"
    return f"{rate} {unit}: {format_options(tuning.candidates[ranked[0]])}"
