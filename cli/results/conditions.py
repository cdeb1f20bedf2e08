"""The conditions under which results were measured, and in which of them results differ. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from simulator.conditions import Condition, find_conditions
from simulator.contract import DataSet, Load
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.options import LEAN
from simulator.workloads.base import WorkloadOptions

from .model import Result, Settings, as_mapping

WARNED = (
    Condition.DATA,
    Condition.DURABILITY,
    Condition.REPLICATION,
    Condition.LOAD,
    Condition.BATCH,
    Condition.SCHEMA,
    Condition.CLIENT,
    Condition.HARDWARE,
)
"""Where these differ, figures can't be compared."""

_ORDER = list(Condition)
_COMMAND = {
    name: condition
    for model in (Load, DataSet, Settings)
    for name, condition in find_conditions(model).items()
}
_WORKLOAD = find_conditions(WorkloadOptions)
_SEARCHES = ("capacity", "tune")
_INDEXES = "indexes"
"""The indexes that tables were found to have: a setting that results of older versions don't tell."""
_HARDWARE = ("cpu_model", "cpus", "cpus_usable", "memory_mb")


class Origin(StrEnum):
    """Where a setting stands in a result."""

    COMMAND = "command"
    OPTION = "option"
    """An option of the database module."""
    SERVER = "server"
    """What the database tells of itself."""
    PACKAGE = "package"
    ENVIRONMENT = "environment"


OWNED = (Origin.OPTION, Origin.SERVER, Origin.PACKAGE)
"""What each module has settings of its own in."""


@dataclass(frozen=True)
class Setting:
    """A setting that may change figures."""

    name: str
    origin: Origin


@dataclass(frozen=True)
class Stated:
    """What a result says of a setting."""

    condition: Condition
    value: Any


@dataclass(frozen=True)
class Difference:
    """A setting in which results differ."""

    condition: Condition
    name: str
    values: Sequence[Any]
    """One for each result; None where it is not set."""


@dataclass(frozen=True)
class Declared:
    """What a module says of its settings."""

    options: Mapping[str, Condition]
    server: Mapping[str, Condition]
    option_names: frozenset[str]
    """All options that it has."""
    in_flight: str | None = None
    """The one that stands for `--in-flight`."""
    modernize: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """Options of an older result in today's words."""


def find_declared(result: Result) -> Declared:
    """What the module declares; nothing if this installation doesn't have it any more: then all of
    its settings count as the database's own."""
    try:
        found = load_module(result.module)
    except (OptionError, ImportError, AttributeError, AssertionError):
        return Declared({}, {}, frozenset())
    model = found.options_model
    names = frozenset(model.option_names(result.settings.module))
    return Declared(
        find_conditions(model), found.CONDITIONS, names, model.IN_FLIGHT, model.modernize
    )


def _find_condition(name: str, result: Result) -> Condition:
    """Of an option of the command. Limits change what a search measures; of others they judge it."""
    if name == "limits" and result.command not in _SEARCHES:
        return Condition.NONE
    return _COMMAND.get(name, Condition.WORKLOAD)


def list_settings(result: Result, declared: Declared) -> dict[Setting, Stated]:
    """All settings that are known to change a figure."""
    found: dict[Setting, Stated] = {}

    def add(condition: Condition, name: str, origin: Origin, value: Any) -> None:
        if condition is not Condition.NONE:
            found[Setting(name, origin)] = Stated(condition, value)

    for name, value in result.options.items():
        if name == "definition":
            for part, text in flatten_definition(value).items():
                add(Condition.WORKLOAD, part, Origin.COMMAND, text)
        elif name != "module":
            add(_find_condition(name, result), name, Origin.COMMAND, value)
    for name, value in declared.modernize(result.settings.module).items():
        # Options that a target has and its module doesn't are the workload's.
        own = not declared.option_names or name in declared.option_names
        otherwise = Condition.DATABASE if own else Condition.WORKLOAD
        origin = Origin.OPTION if own else Origin.COMMAND
        known = declared.options if own else _WORKLOAD
        add(known.get(name, otherwise), name, origin, value)
    for setting, stated in _list_defaults(result).items():
        found.setdefault(setting, stated)
    database = result.describe("database")
    if "version" in database:
        add(Condition.DATABASE, "version", Origin.ENVIRONMENT, database["version"])
    for name, value in _flatten(database.get("settings")):
        add(declared.server.get(name, Condition.DATABASE), name, Origin.SERVER, value)
    indexes = as_mapping(database.get("schema")).get("indexes")
    if indexes is not None:
        add(Condition.SCHEMA, _INDEXES, Origin.SERVER, indexes)
    client = result.describe("client")
    for name, value in _flatten(client.get("packages")):
        add(Condition.CLIENT, name, Origin.PACKAGE, value)
    for condition, name, value in _list_surroundings(result, client):
        add(condition, name, Origin.ENVIRONMENT, value)
    return found


def find_durability(result: Result) -> dict[str, Any]:
    """Setting -> value, by name, of those that decide what an acknowledgement is worth."""
    found = {
        setting.name: stated.value
        for setting, stated in list_settings(result, find_declared(result)).items()
        if stated.condition is Condition.DURABILITY and stated.value is not None
    }
    return dict(sorted(found.items()))


def _list_defaults(result: Result) -> dict[Setting, Stated]:
    """What a result from before there were these options would say of them."""
    found = {
        Setting(name, Origin.COMMAND): Stated(_WORKLOAD.get(name, Condition.WORKLOAD), value)
        for name, value in WorkloadOptions().model_dump(mode="json").items()
    }
    if result.command != "query":
        found[Setting("client", Origin.OPTION)] = Stated(Condition.CLIENT, LEAN)
    if result.command == "query" or result.settings.readers_beside:
        found[Setting("reader_in_flight", Origin.COMMAND)] = Stated(Condition.CLIENT, 1)
    return found


def flatten_definition(definition: Mapping[str, Any]) -> dict[str, str]:
    """What a workload's definition says, as `definition.interval`, `definition.columns.heat`."""
    found = {}
    for key, value in definition.items():
        named = isinstance(value, list) and all(as_mapping(part).get("name") for part in value)
        for part in value if named else ():
            rest = {name: own for name, own in part.items() if name != "name"}
            found[f"definition.{key}.{part['name']}"] = _write_flow(rest)
        if not named:
            found[f"definition.{key}"] = value if isinstance(value, str) else _write_flow(value)
    return found


def _write_flow(value: Any) -> str:
    """As YAML in a line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _list_surroundings(
    result: Result, client: Mapping[str, Any]
) -> Iterable[tuple[Condition, str, Any]]:
    """What is the same for all databases: the tool, the machines, the data asked."""
    yield Condition.CLIENT, "executor", result.executor
    tool = result.describe("tool")
    for name in ("version", "commit"):
        yield Condition.CLIENT, f"tool {name}", tool.get(name)
    yield Condition.CLIENT, "Python", client.get("python")
    for name in _HARDWARE:
        yield Condition.HARDWARE, name, client.get(name)
    kubernetes = result.describe("kubernetes")
    if kubernetes.get("version"):
        yield Condition.HARDWARE, "Kubernetes", kubernetes["version"]
    nodes = [as_mapping(node) for node in as_mapping(kubernetes.get("nodes")).values()]
    for name in ("instance_type", "cpu", "memory"):
        if any(node.get(name) for node in nodes):
            values = sorted({str(node.get(name)) for node in nodes})
            yield Condition.HARDWARE, f"nodes: {name}", values
    if result.command == "query":
        yield Condition.CLIENT, "workers", result.settings.readers
        yield Condition.DATA, "fill level", result.fill_level


def find_in_flight(result: Result) -> int | None:
    """Requests that each writer could have under way, whichever option said so; None if not known."""
    clients = [one.group.client for one in result.writers]
    told = {client.in_flight for client in clients if client}
    return told.pop() if len(told) == 1 else None


def _state_in_flight(
    results: Sequence[Result],
    declared: Sequence[Declared],
    found: Sequence[dict[Setting, Stated]],
) -> None:
    """Let what was in effect stand for the options that say how many requests are in flight, whose
    names differ from module to module."""
    numbers = [find_in_flight(result) for result in results]
    if None in numbers:
        return
    for number, said, own in zip(numbers, declared, found, strict=True):
        for origin in (Origin.OPTION, Origin.SERVER):
            own.pop(Setting(said.in_flight or "", origin), None)
        own[Setting("in_flight", Origin.COMMAND)] = Stated(Condition.CLIENT, number)


def _leave_out_indexes(results: Sequence[Result], found: Sequence[dict[Setting, Stated]]) -> None:
    """Leave out the indexes of tables unless all results tell them, in the words of one database."""
    indexes = Setting(_INDEXES, Origin.SERVER)
    if len({result.module for result in results}) > 1 or any(indexes not in own for own in found):
        for own in found:
            own.pop(indexes, None)


@dataclass(frozen=True)
class Conditions:
    """What several results have in common, and in what they differ."""

    differences: Sequence[Difference]
    """Those that figures can't be compared for first."""
    apart: Sequence[Condition]
    """Kinds of which the databases have settings of their own, which can't be set against each other."""


def compare_conditions(results: Sequence[Result]) -> Conditions:
    """The settings in which the results differ. A setting that not all of their modules have says
    nothing about the difference: the other database does the same by another name, or not at all."""
    declared = [find_declared(result) for result in results]
    found = [list_settings(*pair) for pair in zip(results, declared, strict=True)]
    if len({result.settings.data.workload for result in results}) > 1:
        # All of two workloads differs: their names say so.
        found = [
            {one: said for one, said in own.items() if not one.name.startswith("definition.")}
            for own in found
        ]
    _state_in_flight(results, declared, found)
    _leave_out_indexes(results, found)
    known: dict[str, set[Setting]] = {}
    for result, said, own in zip(results, declared, found, strict=True):
        of_module = known.setdefault(result.module, set())
        of_module |= {Setting(name, Origin.OPTION) for name in said.option_names}
        of_module |= {setting for setting in own if setting.origin in OWNED}
    shared = set.intersection(*known.values())
    differences: dict[Setting, Difference] = {}
    apart = set()
    for setting in dict.fromkeys(setting for own in found for setting in own):
        stated = [own.get(setting) for own in found]
        values = [None if one is None else one.value for one in stated]
        if all(value == values[0] for value in values):
            continue
        # Two databases may mean different things by one name; the gravest counts.
        condition = min((one.condition for one in stated if one), key=_ORDER.index)
        if setting.origin in OWNED and setting not in shared:
            apart.add(condition)
        else:
            differences[setting] = Difference(condition, setting.name, values)
    return Conditions(
        sorted(_merge_told_twice(differences), key=lambda one: _ORDER.index(one.condition)),
        [one for one in WARNED if one in apart and one is not Condition.CLIENT],
    )


def _merge_told_twice(differences: Mapping[Setting, Difference]) -> list[Difference]:
    """The differences without the settings of the database that only repeat a module's option."""
    options = {
        (one.condition, one.name): one.values
        for setting, one in differences.items()
        if setting.origin is Origin.OPTION
    }
    return [
        one
        for setting, one in differences.items()
        if setting.origin is not Origin.SERVER
        or options.get((one.condition, one.name)) != one.values
    ]


def _flatten(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The leaves of nested mappings: `outer.inner` -> value."""
    for name, inner in as_mapping(value).items():
        if isinstance(inner, Mapping):
            yield from _flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner
