"""The cost of indexes: disk space of each, and the slowdown of inserts from those that only one of two
candidates has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simulator.conditions import Condition

from .conditions import WARNED, compare_conditions
from .figures import COMPARED
from .matrix import Measured, find_given, tabulate
from .model import Result, as_mapping
from .observations import observe
from .statistics import Ratio, estimate_ratio

_MADE_BY = frozenset({"create_indices", "indexes", "definition.schema"})
"""Settings that may differ between candidates that differ only in indexes."""
_RATES = ("inserts_per_s", "capacity_per_s")


@dataclass(frozen=True)
class IndexCosts:
    """The cost of a candidate's indexes."""

    sizes: Mapping[str, int]
    """Index -> bytes; empty if the database doesn't report them."""
    total_bytes: int
    """Tables including indexes; 0 if unknown."""
    without: str | None = None
    """A candidate with fewer indexes and no other difference."""
    speed: Ratio | None = None
    """Insert speed relative to the candidate without; None: not measured."""

    @property
    def share(self) -> float | None:
        """Their share of the disk space; None if unknown."""
        return sum(self.sizes.values()) / self.total_bytes if self.total_bytes else None


def find_index_sizes(results: Sequence[Result]) -> IndexCosts:
    """Size of each index after the last valid run."""
    stored = [
        run.group.storage
        for result in results
        for run in result.writers
        if run.group.valid and run.group.storage is not None
    ]
    if not stored or not stored[-1].indexes:
        return IndexCosts({}, 0)
    return IndexCosts(stored[-1].indexes, stored[-1].total_bytes or 0)


def find_index_costs(measured: Measured) -> dict[str, IndexCosts]:
    """Candidate -> the cost of its indexes, where known. `measured`: candidate -> its results of one step."""
    measured = {
        name: results for name, results in measured.items() if any(r.writers for r in results)
    }
    listed = {name: _list_indexes(results[-1]) for name, results in measured.items()}
    are_speeds = find_given(measured) is None
    costs = {}
    for name, results in measured.items():
        own = find_index_sizes(results)
        fewer = [
            other for other, indexes in listed.items()
            if indexes < listed[name] and _differ_in_indexes(results[-1], measured[other][-1])
        ] if are_speeds and not _built_after(results) else []  # fmt: skip
        if fewer:
            without = max(fewer, key=lambda other: len(listed[other]))
            speed = _compare_inserts(results, measured[without])
            own = IndexCosts(own.sizes, own.total_bytes, without, speed)
        if own.sizes or own.speed is not None:
            costs[name] = own
    return costs


def _list_indexes(result: Result) -> frozenset[str]:
    schema = as_mapping(result.describe("database").get("schema"))
    return frozenset(schema.get("indexes") or ())


def _built_after(results: Sequence[Result]) -> bool:
    """Whether inserts had no indexes to maintain."""
    return any(run.index_build_s is not None for result in results for run in result.runs)


def _differ_in_indexes(own: Result, other: Result) -> bool:
    if own.module != other.module:
        return False
    differences = compare_conditions([own, other]).differences
    counted = (*WARNED, Condition.WORKLOAD)
    return all(told.name in _MADE_BY for told in differences if told.condition in counted)


def _compare_inserts(own: Sequence[Result], base: Sequence[Result]) -> Ratio | None:
    sides = {"own": own, "base": base}
    rows = tabulate(
        (
            observation
            for side, results in sides.items()
            for number, result in enumerate(results, 1)
            for observation in observe(result, side, number, COMPARED, parts=False)
        ),
        {side: len(results) for side, results in sides.items()},
        _RATES,
    ).rows
    values, base_values = rows["own"].pool(), rows["base"].pool()
    places = [place for place in base_values if place in values]
    if not places:
        return None
    fastest = max(places, key=lambda place: fmean(base_values[place]))
    step = max(row.precision for row in rows.values()) if fastest.capacity else 0.0
    return estimate_ratio(values[fastest], base_values[fastest], step=step)
