"""A tuning as a table of its combinations, in words, and as the lines to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from simulator.workloads.base import WorkloadOptions

from ..results.model import Result
from ..results.naming import find_changed_options, format_options, format_value
from ..results.tuning import Tuning, compare_candidates, is_best_shown, mean
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
    dropped = sorted(
        (candidate for candidate in last if candidate not in ranked),
        key=lambda candidate: (-last[candidate], -_reach(tuning, candidate)),
    )
    rows = []
    for candidate in [*ranked, *dropped][:MOST_ROWS]:
        stage = last[candidate] if candidate in ranked else None
        rates = tuning.find_rates(candidate, stage)
        rows.append(
            [
                *(format_value(value) for value in tuning.candidates[candidate].values()),
                f"{last[candidate]:,}",
                f"{len(rates):,}",
                format_rate(mean(rates)) if rates else "-",
                _describe_place(tuning, ranked, candidate),
            ]
        )
    unit = "Capacity, events/s" if tuning.limits else "Inserts/s"
    names = [setting.name for setting in tuning.over]
    return Table([*names, "Stage", "Runs", unit, "Place"], rows, left=("Place",))


def _reach(tuning: Tuning, candidate: int) -> float:
    rates = tuning.find_rates(candidate)
    return mean(rates) if rates else 0.0


def _describe_place(tuning: Tuning, ranked: list[int], candidate: int) -> str:
    words = []
    if candidate in ranked:
        first = "best" if is_best_shown(tuning, ranked) else "highest"
        words.append(first if candidate == ranked[0] else str(ranked.index(candidate) + 1))
    elif candidate in tuning.finalists:
        words.append("compared")
    if tuning.candidates[candidate] == tuning.defaults:
        words.append("defaults")
    reasons = [reason for t in tuning.trials if t.candidate == candidate for reason in t.reasons]
    if not tuning.find_rates(candidate) and reasons:
        words.append(reasons[-1])
    return ", ".join(words) or "-"


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
    rate = format_rate(mean(tuning.find_rates(best, tuning.stages)))
    unit = "events/s within " + ", ".join(map(str, tuning.limits)) if tuning.limits else "inserts/s"
    name = format_options(tuning.candidates[best])
    lines = [f"Best: {name}: {rate} {unit}."]
    if not is_best_shown(tuning, ranked):
        lines = [f"No best is shown; {name} measured highest: {rate} {unit}."]
    if len(ranked) > 1:
        second = format_options(tuning.candidates[ranked[1]])
        lines.append(
            f"Compared with the next, {second}: {_describe_difference(tuning, best, ranked[1])}."
        )
    default = _find(tuning, tuning.defaults)
    if default in tuning.finalists and default not in (best, *ranked[1:2]):
        lines.append(
            f"Compared with the defaults, {format_options(tuning.defaults)}:"
            f" {_describe_difference(tuning, best, default)}."
        )
    elif default == best:
        lines.append("These are the defaults.")
    return lines + _describe_costs(tuning, best)


def _describe_costs(tuning: Tuning, best: int) -> list[str]:
    """What it costs to leave each setting at its default, with the others as they were found."""
    lines = []
    for setting in tuning.over:
        own = tuning.candidates[best]
        default = format_value(setting.default)
        if own[setting.name] == setting.default:
            lines.append(f"{setting.name}: its default, {default}, is best.")
        else:
            cost = _describe_cost(tuning, best, {**own, setting.name: setting.default})
            lines.append(f"{setting.name} left at {default}: {cost}.")
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
    options = {setting.name: settings[setting.name] for setting in tuning.over if setting.option}
    flags = [
        f"--{setting.name.replace('_', '-')} {format_value(settings[setting.name])}"
        for setting in tuning.over
        if not setting.option
    ]
    flags += [f"--extra-option {shlex.quote(f'{k}={format_value(v)}')}" for k, v in options.items()]
    command = " ".join(
        [f"{program()} insert --target {result.target}", *_list_given(result), *flags]
    )
    lines = ["", f"To use it: {command}"]
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


def _list_given(result: Result) -> list[str]:
    """Those of them that aren't at their defaults, as flags of `insert`."""
    varied = {setting.name for setting in result.tuning.over} if result.tuning else set()
    changed = {
        name: value for name, value in find_changed_options(result).items() if name not in varied
    }
    workers = result.settings.workers or 1
    count = workers if isinstance(workers, int) else workers[0]
    flags = [f"--workers {count}"] if count > 1 and "workers" not in varied else []
    flags += [
        f"--{name.replace('_', '-')} {shlex.quote(format_value(changed[name]))}"
        for name in _GIVEN
        if name in changed
    ]
    return flags + [
        f"--workload-option {shlex.quote(f'{name}={format_value(changed[name])}')}"
        for name in WorkloadOptions.model_fields
        if name in changed
    ]


def write_tuning_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    if tuning is None or not ranked:
        return "no combination found"
    rate = format_rate(mean(tuning.find_rates(ranked[0], tuning.stages)))
    unit = "events/s" if tuning.limits else "inserts/s"
    return f"{rate} {unit}: {format_options(tuning.candidates[ranked[0]])}"
