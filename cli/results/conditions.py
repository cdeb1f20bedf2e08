"""The conditions under which results were measured, and which of them differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from simulator.conditions import Condition, find_conditions
from simulator.contract import DataSet, Load
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.base import AnyModule
from simulator.modules.options import LEAN
from simulator.workloads.base import WorkloadOptions

from .decision import Acknowledgement
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
"""If these differ, figures can't be compared."""

_ORDER = list(Condition)
_COMMAND = {
    name: condition
    for model in (Load, DataSet, Settings)
    for name, condition in find_conditions(model).items()
}
_WORKLOAD = find_conditions(WorkloadOptions)
_SEARCHES = ("capacity", "tune")
_INDEXES = "indexes"
"""The indexes found on tables: not every result has them."""
_HARDWARE = ("cpu_model", "cpus", "cpus_usable", "memory_mb")


class Origin(StrEnum):
    """Where a result keeps a setting."""

    COMMAND = "command"
    OPTION = "option"
    """An option of the database module."""
    SERVER = "server"
    """What the database says about itself."""
    PACKAGE = "package"
    ENVIRONMENT = "environment"


OWNED = (Origin.OPTION, Origin.SERVER, Origin.PACKAGE)
"""The origins whose settings are specific to a module."""


@dataclass(frozen=True)
class Setting:
    """A setting that may affect figures."""

    name: str
    origin: Origin


@dataclass(frozen=True)
class SettingValue:
    """The value of a setting in a result."""

    condition: Condition
    value: Any


@dataclass(frozen=True)
class Difference:
    """A setting that differs between results."""

    condition: Condition
    name: str
    values: Sequence[Any]
    """One per result; None if not set."""


@dataclass(frozen=True)
class Declared:
    """What a module declares about its settings."""

    options: Mapping[str, Condition]
    server: Mapping[str, Condition]
    option_names: frozenset[str]
    """All of its options."""
    in_flight: str | None = None
    """Its option that corresponds to `--in-flight`."""


def _load_module(result: Result) -> type[AnyModule] | None:
    """None if this installation no longer has it."""
    try:
        return load_module(result.module)
    except (OptionError, ImportError, AttributeError, AssertionError):
        return None


def find_declared(result: Result) -> Declared:
    """What the module declares; nothing if this installation no longer has it: then all of its settings count
    as specific to the database."""
    module = _load_module(result)
    if module is None:
        return Declared({}, {}, frozenset())
    model = module.options_model
    names = frozenset(model.option_names(result.settings.module))
    return Declared(find_conditions(model), module.CONDITIONS, names, model.IN_FLIGHT)


def list_settings(result: Result, declared: Declared) -> dict[Setting, SettingValue]:
    """All settings known to affect a figure."""
    settings: dict[Setting, SettingValue] = {}

    def add(condition: Condition, name: str, origin: Origin, value: Any) -> None:
        if condition is not Condition.NONE:
            settings[Setting(name, origin)] = SettingValue(condition, value)

    for name, value in result.options.items():
        if name == "definition":
            for part, text in flatten_definition(value).items():
                add(Condition.WORKLOAD, part, Origin.COMMAND, text)
        # Limits change what a search measures; other commands are only judged by them.
        elif name != "module" and (name != "limits" or result.command in _SEARCHES):
            add(_COMMAND.get(name, Condition.WORKLOAD), name, Origin.COMMAND, value)
    for name, value in result.settings.module.items():
        # Options of a target that its module lacks are the workload's.
        of_module = not declared.option_names or name in declared.option_names
        otherwise = Condition.DATABASE if of_module else Condition.WORKLOAD
        origin = Origin.OPTION if of_module else Origin.COMMAND
        conditions = declared.options if of_module else _WORKLOAD
        add(conditions.get(name, otherwise), name, origin, value)
    for setting, stated in _list_defaults(result).items():
        settings.setdefault(setting, stated)
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
    return settings


def find_durability(result: Result) -> dict[str, Any]:
    """Setting -> value, sorted by name, of the settings that decide durability."""
    values = {
        setting.name: stated.value
        for setting, stated in list_settings(result, find_declared(result)).items()
        if stated.condition is Condition.DURABILITY and stated.value is not None
    }
    return dict(sorted(values.items()))


def find_acknowledgement(result: Result) -> Acknowledgement | None:
    """The durability of an acknowledgement; None if the module isn't installed, or doesn't declare it."""
    module = _load_module(result)
    database = result.describe("database")
    if module is None:
        return None
    durability = module.find_durability(str(database.get("version", "")))
    if durability is None:
        return None
    options = result.settings.module
    # What was in effect according to the server.
    worth = durability.judge({**options, **as_mapping(database.get("settings"))})
    advice = ", ".join(f"{name}={value}" for name, value in worth.remedy.items())
    return Acknowledgement(
        on_disk=worth.on_disk, when=worth.when, places=worth.places, advice=advice,
        client=str(options.get("client", LEAN)),
    )  # fmt: skip


def _list_defaults(result: Result) -> dict[Setting, SettingValue]:
    """What a result from before these options would have recorded."""
    settings = {
        Setting(name, Origin.COMMAND): SettingValue(_WORKLOAD.get(name, Condition.WORKLOAD), value)
        for name, value in WorkloadOptions().model_dump(mode="json").items()
    }
    if result.command != "query":
        settings[Setting("client", Origin.OPTION)] = SettingValue(Condition.CLIENT, LEAN)
    if result.command == "query" or result.settings.readers_beside:
        settings[Setting("reader_in_flight", Origin.COMMAND)] = SettingValue(Condition.CLIENT, 1)
    return settings


def flatten_definition(definition: Mapping[str, Any]) -> dict[str, str]:
    """A workload's definition as settings, such as `definition.interval`, `definition.columns.heat`."""
    texts = {}
    for key, value in definition.items():
        named = isinstance(value, list) and all(as_mapping(part).get("name") for part in value)
        for part in value if named else ():
            rest = {name: field for name, field in part.items() if name != "name"}
            texts[f"definition.{key}.{part['name']}"] = _write_flow(rest)
        if not named:
            texts[f"definition.{key}"] = value if isinstance(value, str) else _write_flow(value)
    return texts


def _write_flow(value: Any) -> str:
    """The value as YAML, in one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _list_surroundings(
    result: Result, client: Mapping[str, Any]
) -> Iterable[tuple[Condition, str, Any]]:
    """Conditions that don't depend on the database: the tool, the machines, the requested data."""
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
    """Requests that each writer could have in flight, whichever option set it; None if unknown."""
    clients = [group_run.group.client for group_run in result.writers]
    numbers = {client.in_flight for client in clients if client}
    return numbers.pop() if len(numbers) == 1 else None


@dataclass(frozen=True)
class Conditions:
    """What several results have in common, and how they differ."""

    differences: Sequence[Difference]
    """Those that make figures incomparable come first."""
    apart: Sequence[Condition]
    """Conditions for which each database has its own settings, which can't be compared."""


def compare_conditions(results: Sequence[Result]) -> Conditions:
    """The settings that differ between the results. A setting that some of their modules lack is no evidence
    of a difference: the other database may have it under another name, or not at all."""
    declared = [find_declared(result) for result in results]
    settings = [list_settings(*pair) for pair in zip(results, declared, strict=True)]
    if len({result.settings.data.workload for result in results}) > 1:
        # Two workloads differ in everything; their names are enough.
        settings = [
            {
                setting: statement
                for setting, statement in own.items()
                if not setting.name.startswith("definition.")
            }
            for own in settings
        ]
    numbers = [find_in_flight(result) for result in results]
    if None not in numbers:
        # Each module has its own option for it: the effective number counts.
        for number, declaration, own in zip(numbers, declared, settings, strict=True):
            for origin in (Origin.OPTION, Origin.SERVER):
                own.pop(Setting(declaration.in_flight or "", origin), None)
            own[Setting("in_flight", Origin.COMMAND)] = SettingValue(Condition.CLIENT, number)
    indexes = Setting(_INDEXES, Origin.SERVER)
    modules = {result.module for result in results}
    if len(modules) > 1 or any(indexes not in own for own in settings):
        # Indexes are compared only within one database.
        for own in settings:
            own.pop(indexes, None)
    by_module: dict[str, set[Setting]] = {}
    for result, declaration, own in zip(results, declared, settings, strict=True):
        of_module = by_module.setdefault(result.module, set())
        of_module |= {Setting(name, Origin.OPTION) for name in declaration.option_names}
        of_module |= {setting for setting in own if setting.origin in OWNED}
    shared = set.intersection(*by_module.values())
    differences: dict[Setting, Difference] = {}
    apart = set()
    for setting in dict.fromkeys(setting for own in settings for setting in own):
        stated = [own.get(setting) for own in settings]
        values = [None if statement is None else statement.value for statement in stated]
        if all(value == values[0] for value in values):
            continue
        # Two databases may use one name for different things; the most serious counts.
        condition = min(
            (statement.condition for statement in stated if statement), key=_ORDER.index
        )
        if setting.origin in OWNED and setting not in shared:
            apart.add(condition)
        else:
            differences[setting] = Difference(condition, setting.name, values)
    of_options = {
        (difference.condition, difference.name): difference.values
        for setting, difference in differences.items()
        if setting.origin is Origin.OPTION
    }
    told_once = [
        difference
        for setting, difference in differences.items()
        # Database settings that only repeat a module's option are covered by it.
        if setting.origin is not Origin.SERVER
        or of_options.get((difference.condition, difference.name)) != difference.values
    ]
    warned = [kind for kind in WARNED if kind in apart and kind is not Condition.CLIENT]
    return Conditions(sorted(told_once, key=lambda told: _ORDER.index(told.condition)), warned)


def _flatten(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The leaves of nested mappings: `outer.inner` -> value."""
    for name, inner in as_mapping(value).items():
        if isinstance(inner, Mapping):
            yield from _flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner
