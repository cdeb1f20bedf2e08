"""What two or more stored results have in common, and in what they differ. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from .model import Result
from .statistics import Ratio, common_cv, ratio, runs_needed
from .store import StoredResult

FIVE_PERCENT = 0.05
"""The difference for which it is said how many runs would show it."""

Key = tuple[str, int]
"""What is compared with its like: (query, 0), (`workers`, count), or (`level`, events)."""


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One result beside the first, at one worker count, fill level or query."""

    key: Key
    position: int
    """Of the result, among those compared."""
    base_figure: float
    figure: float
    """Means: inserts per second, or seconds of a query."""
    base_runs: int
    runs: int
    speed: Ratio
    """How many times as fast as the first: rate ÷ its rate, or its query time ÷ query time."""
    runs_for_five_percent: int | None
    """Runs that each side would need; None if not known, or more than is sensible."""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.speed.differs is None:
            return "not known: needs 2 runs"
        if not self.speed.differs:
            return "no difference shown"
        return "faster" if self.speed.value > 1 else "slower"


def samples(result: Result) -> dict[Key, list[float]]:
    """The figures that stand for independent runs: inserts per second of each valid run, or seconds of
    each query. Workers that ask at the same time hinder each other, so their mean counts once."""
    found: dict[Key, list[float]] = {}
    for run in result.insert_runs:
        if run.valid and run.inserts_per_s:
            key = ("level", run.fill_level) if result.by_fill_level else ("workers", run.workers)
            found.setdefault(key, []).append(run.inserts_per_s)
    asked: dict[tuple[str, int], list[float]] = {}
    for execution in result.query_runs:
        if execution.duration_s:
            asked.setdefault((execution.query, execution.run), []).append(execution.duration_s)
    for (query, _), durations in asked.items():
        found.setdefault((query, 0), []).append(sum(durations) / len(durations))
    return found


def check_comparable(results: Sequence[StoredResult]) -> None:
    """ConfigError if these can't be compared at all."""
    if len(results) < 2:
        raise ConfigError("compare needs two results or more")
    kinds = list(dict.fromkeys(kind_of(stored.result) for stored in results))
    if len(kinds) > 1:
        raise ConfigError(f"{' and '.join(kinds)} can't be compared with each other")


def compared(results: Sequence[Result]) -> list[Compared]:
    """Each result beside the first, wherever both have figures, in the first one's order."""
    base, *others = [samples(result) for result in results]
    higher_is_faster = results[0].command == "insert"
    found = []
    for key, base_values in base.items():
        for position, other in enumerate(others, 1):
            if key not in other:
                continue
            values = other[key]
            speed = ratio(values, base_values) if higher_is_faster else ratio(base_values, values)
            cv = common_cv(base_values, values)
            found.append(
                Compared(
                    key,
                    position,
                    sum(base_values) / len(base_values),
                    sum(values) / len(values),
                    len(base_values),
                    len(values),
                    speed,
                    None if cv is None else runs_needed(cv, FIVE_PERCENT),
                )
            )
    return found


def failures(names: Sequence[str], results: Sequence[Result], limit: float) -> list[str]:
    """Why a comparison fails against a limit: each speed ratio below it, unless its interval shows no
    difference; and a result that has nothing to compare, which must not pass for want of figures."""
    found = compared(results)
    failed = [
        f"{names[one.position]} at {key_text(one.key)}: {one.speed.value:.3f}"
        for one in found
        if one.speed.value < limit and one.speed.differs is not False
    ]
    absent = set(range(1, len(results))) - {one.position for one in found}
    return failed + [f"{names[n]} has nothing to compare with {names[0]}" for n in sorted(absent)]


def missing(results: Sequence[Result]) -> list[tuple[Key, int]]:
    """(what, position of the result that has no figure for it while another has)."""
    found = [samples(result) for result in results]
    keys = dict.fromkeys(key for each in found for key in each)
    return [(key, n) for key in keys for n, each in enumerate(found) if key not in each]


def key_text(key: Key) -> str:
    """`4 workers`, `level 2,000`, `count-events`."""
    name, number = key
    if name == "workers":
        return f"{number} worker" + ("s" if number != 1 else "")
    return f"level {number:,}" if name == "level" else name


# --- conditions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A condition in which results differ."""

    category: str
    name: str
    values: Sequence[Any]
    """One for each result; None where it is not set."""


# Which kind of condition a setting is, by its name: the first that fits. Databases have hundreds of
# settings, but the words for these few things are much the same.
_CATEGORIES: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (category, re.compile(pattern))
    for category, pattern in (
        ("client", r"in_flight|max_sync_calls|max_retries|device_spread|extra_tags|^delay_ms$"),
        ("batch", r"^batch|insert_mode|values_lists|copy_format|bulk"),
        ("keys", r"primary_key|^tables$|partition"),
        ("replication", r"replic|shard|standby|quorum|nodes$|node_count|cluster_size"),
        (
            "durability",
            (r"sync|durab|commit|wal|journal|translog|flush|full_page|consisten|refresh"
            r"|(^|_)acks?(_|$)"),
        ),
    )
)  # fmt: skip

# Where the database is says nothing about what it does, and names of pods differ from run to run.
_ADDRESSES = re.compile(
    r"connection_string|endpoint|contact_points|uri|^host|^user|password|token|^database$"
    r"|keyspace|^kusto_db$|existingSecret|data_dir"
)
_HARDWARE = ("cpu_model", "cpus", "cpus_usable", "memory_mb")

CATEGORIES = (
    "data", "durability", "replication", "batch", "keys", "client", "hardware", "workload", "database",
)  # fmt: skip
"""In the order in which they are named; the first seven make figures incomparable."""

WARNED = CATEGORIES[:7]


def category_of(setting: str, otherwise: str) -> str:
    """The kind of condition that a setting is."""
    name = setting.lower().replace("-", "_")
    return next((kind for kind, pattern in _CATEGORIES if pattern.search(name)), otherwise)


def conditions(result: Result) -> dict[tuple[str, str], Any]:
    """(category, name) -> value of all that is known to change a figure."""
    found: dict[tuple[str, str], Any] = {}
    for name, value in result.options.items():
        # Worker counts and runs are what is swept, not a condition: figures are matched by them.
        if name not in ("module", "workers", "runs", "steps", "timeout_s"):
            found[category_of(name, "workload"), name] = value
    for name, value in _mapping(result.options.get("module")).items():
        if not _ADDRESSES.search(name):
            found[category_of(name, "database"), name] = value
    database = _mapping(result.environment.get("database"))
    if "version" in database:
        found["database", "version"] = database["version"]
    for name, value in _flat(database.get("settings")):
        found[category_of(name, "database"), name] = value
    found |= _client(result)
    kubernetes = _mapping(result.environment.get("kubernetes"))
    if kubernetes.get("version"):
        found["hardware", "Kubernetes"] = kubernetes["version"]
    nodes = [_mapping(node) for node in _mapping(kubernetes.get("nodes")).values()]
    for name in ("instance_type", "cpu", "memory"):
        if any(node.get(name) for node in nodes):
            found["hardware", f"nodes: {name}"] = sorted({str(node.get(name)) for node in nodes})
    if not result.by_fill_level and result.command == "query":
        found["client", "workers"] = result.options.get("workers")
        found["data", "fill level"] = result.fill_level
    return found


def _client(result: Result) -> dict[tuple[str, str], Any]:
    tool = _mapping(result.environment.get("tool"))
    client = _mapping(result.environment.get("client"))
    found: dict[tuple[str, str], Any] = {("client", "executor"): result.executor}
    for name in ("version", "commit"):
        found["client", f"tool {name}"] = tool.get(name)
    found["client", "Python"] = client.get("python")
    for name, version in _flat(client.get("packages")):
        found["client", name] = version
    for name in _HARDWARE:
        found["hardware", name] = client.get(name)
    return found


def differences(results: Sequence[Result]) -> list[Difference]:
    """The conditions that are not the same for all, in the order of CATEGORIES."""
    found = [conditions(result) for result in results]
    keys = dict.fromkeys(key for each in found for key in each)
    different = [
        Difference(category, name, values)
        for category, name in keys
        if not _all_equal(values := [each.get((category, name)) for each in found])
    ]
    return sorted(different, key=lambda one: CATEGORIES.index(one.category))


def differing_options(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each result, those of its options that are not the same in all results of its command."""
    options = [_all_options(result) for result in results]
    found = []
    for result, own in zip(results, options, strict=True):
        like = [o for r, o in zip(results, options, strict=True) if r.command == result.command]
        names = dict.fromkeys(name for each in like for name in each)
        different = [name for name in names if not _all_equal([each.get(name) for each in like])]
        found.append({name: own[name] for name in different if name in own})
    return found


MOST_OPTIONS = 3
"""In a name; results with more differing options are told apart by time."""


def labels(results: Sequence[StoredResult]) -> list[str]:
    """Short and distinct names: the target, with what tells its results of one kind apart."""
    kinds = [(one.result.target, kind_of(one.result)) for one in results]
    names = [""] * len(results)
    for target, kind in dict.fromkeys(kinds):
        places = [place for place, own in enumerate(kinds) if own == (target, kind)]
        others = any(own[0] == target and own[1] != kind for own in kinds)
        base = f"{target}, {kind}" if others else target
        for place, name in zip(places, _distinct(base, [results[n] for n in places]), strict=True):
            names[place] = name
    return names


def kind_of(result: Result) -> str:
    """`inserts`, `fill levels` or `queries`: what can be compared with its like."""
    if result.command == "query":
        return "queries"
    return "fill levels" if result.by_fill_level else "inserts"


def _distinct(base: str, results: Sequence[StoredResult]) -> list[str]:
    options = differing_options([one.result for one in results])
    few = all(len(own) <= MOST_OPTIONS for own in options)
    by_option = [" ".join([base, *_option_texts(own)]) if few else base for own in options]
    by_time = [
        name
        if by_option.count(name) == 1
        else f"{name} {one.result.started_at[:19].replace('T', ' ')}"
        for name, one in zip(by_option, results, strict=True)
    ]
    return [
        name if by_time.count(name) == 1 else f"{name} ({number})"
        for number, name in enumerate(by_time, 1)
    ]


def option_text(options: Mapping[str, Any]) -> str:
    """`batch=1000 runs=3`."""
    return " ".join(_option_texts(options))


def _option_texts(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value_text(value)}" for name, value in options.items()]


def value_text(value: Any) -> str:
    """A setting as it would be written on a command line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return str(value)


def _all_options(result: Result) -> dict[str, Any]:
    own = {name: value for name, value in result.options.items() if name != "module"}
    return own | dict(_mapping(result.options.get("module")))


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flat(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The leaves of nested mappings: `outer.inner` -> value."""
    for name, inner in _mapping(value).items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner
