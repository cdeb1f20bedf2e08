"""Short, distinct names for results shown side by side. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from simulator.conditions import Condition, find_conditions
from simulator.contract import DataSet, Load
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.units import format_count
from simulator.workloads.base import WorkloadOptions

from .model import MATCHED, GroupRun, Result, Settings
from .store import StoredResult

MOST_OPTIONS = 3
"""The most options in a name; results that differ in more are named by time."""


def name_database(result: Result) -> str | None:
    """Name and version of the server, without build details."""
    parts = str(result.describe("database").get("version") or "").split("; ")
    return "; ".join(re.split(r" on |,| \(", part)[0] for part in parts) or None


@dataclass(frozen=True)
class NamedResult:
    """A result with its name among others."""

    name: str
    result: Result


def describe_run(result: Result, group_run: GroupRun) -> str:
    """`4 workers, run 2`, `level 2,000` or, in a comparison of clients, `lean, run 2`."""
    number, level = group_run.run.run, group_run.run.fill_level
    if result.by_fill_level:
        return "level -" if level is None else f"level {level:,}"
    if result.clients is not None:
        return f"{result.clients.find_client(number) or 'loading'}, run {number}"
    return f"{format_count(group_run.group.workers, 'worker')}, run {number}"


def name_results(results: Sequence[StoredResult]) -> list[str]:
    """The label of each result if unique; otherwise its target, with what distinguishes results of one
    kind."""
    kinds = [(stored.result.target, stored.result.kind) for stored in results]
    names = [""] * len(results)
    for target, kind in dict.fromkeys(kinds):
        places = [place for place, own in enumerate(kinds) if own == (target, kind)]
        has_others = any(own[0] == target and own[1] != kind for own in kinds)
        base = f"{target}, {kind}" if has_others else target
        distinct = _distinguish(base, [results[place] for place in places])
        for place, name in zip(places, distinct, strict=True):
            names[place] = name
    labels = [stored.result.label for stored in results]
    return [
        label if label and labels.count(label) == 1 and label not in names else name
        for label, name in zip(labels, names, strict=True)
    ]


def _distinguish(base: str, results: Sequence[StoredResult]) -> list[str]:
    options = find_differing_options([stored.result for stored in results])
    few = all(len(own) <= MOST_OPTIONS for own in options)
    by_option = [" ".join([base, *_format_each(own)]) if few else base for own in options]
    by_time = [
        name
        if by_option.count(name) == 1
        else f"{name} {stored.result.started_at[:19].replace('T', ' ')}"
        for name, stored in zip(by_option, results, strict=True)
    ]
    return [
        name if by_time.count(name) == 1 else f"{name} ({number})"
        for number, name in enumerate(by_time, 1)
    ]


def find_differing_options(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each result, the options that differ among results of its command, except those without effect,
    such as timeouts."""
    from simulator.modules.options import Options

    silent = _list_silent(Settings) | _list_silent(Options)
    options = [
        {name: value for name, value in _join_options(result).items() if name not in silent}
        for result in results
    ]
    different: dict[str, list[str]] = {}
    for command in {result.command for result in results}:
        like = [
            own for result, own in zip(results, options, strict=True) if result.command == command
        ]
        names = dict.fromkeys(name for own in like for name in own)
        different[command] = [
            name for name in names if any(own.get(name) != like[0].get(name) for own in like)
        ]
    return [
        {name: own[name] for name in different[result.command] if name in own}
        for result, own in zip(results, options, strict=True)
    ]


def find_changed_options(result: Result) -> dict[str, Any]:
    """The options of a result that aren't at their defaults, except those that affect no figure. Options
    whose default is unknown here are left out: they may come from a module that isn't installed.
    """
    from simulator.modules.options import Options

    # The mode follows from other options.
    silent = _list_silent(Settings) | _list_silent(Options) | MATCHED | {"insert_mode"}
    defaults = _find_defaults(result)
    return {
        name: value
        for name, value in _join_options(result).items()
        if name in defaults and name not in silent and value not in (None, defaults[name])
    }


def _find_defaults(result: Result) -> dict[str, Any]:
    """Option -> default, as in result.json: of every command, of the module and of every workload."""
    models: list[type[BaseModel]] = [Load, DataSet, WorkloadOptions]
    defaults: dict[str, Any] = {}
    in_flight: str | None = None
    with suppress(OptionError, ImportError, AttributeError, AssertionError):
        options = load_module(result.module).options_model
        models.append(options)
        in_flight = options.IN_FLIGHT
    for model in models:
        for name, field in model.model_fields.items():
            if not field.is_required():
                default = field.get_default(call_default_factory=True, validated_data={})
                defaults[field.alias or name] = to_jsonable_python(default)
    defaults["reader_in_flight"] = 1
    # The result has the effective values.
    defaults["in_flight"] = defaults.get(in_flight, 1) if in_flight else 1
    return defaults


def format_options(options: Mapping[str, Any]) -> str:
    """`batch=1000 runs=3`."""
    return " ".join(_format_each(options))


def _format_each(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={format_value(value)}" for name, value in options.items()]


def format_value(value: Any) -> str:
    """A setting in command-line form."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    if isinstance(value, Mapping):
        return ",".join(
            f"{name}={part:g}" if isinstance(part, float) else f"{name}={format_value(part)}"
            for name, part in value.items()
        )
    return str(value)


def _list_silent(model: type[BaseModel]) -> set[str]:
    """The options that affect no figure; those that match figures do distinguish results."""
    conditions = find_conditions(model).items()
    return {name for name, condition in conditions if condition is Condition.NONE} - MATCHED


def _join_options(result: Result) -> dict[str, Any]:
    options = {name: value for name, value in result.options.items() if name != "module"}
    if "definition" in options:
        options["definition"] = f"{crc32(to_json(options['definition'])):08x}"
    return options | result.settings.module
