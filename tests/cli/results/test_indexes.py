"""What indexes cost: each on disk, and in inserts where a candidate differs in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cli.results.indexes import find_index_costs
from cli.results.model import Result
from cli.show.ratios import describe_index_costs
from cli.show.stored import tabulate_indexes
from simulator.contract import Storage

from ..made import ENVIRONMENT, inserts

KEY, BY_DEVICE, BY_TIME = "b btree (id)", "b btree (boiler, at)", "b btree (at)"
SLOW, FAST = [50.0, 51.0, 49.0], [100.0, 101.0, 99.0]


def make(rates: Sequence[float], *indexes: str, created: str = "no", **options: Any) -> Result:
    """Inserts into tables with these indexes, each of which takes 1 MB of 10."""
    database = ENVIRONMENT["database"] | {"schema": {"indexes": list(indexes)}}
    result = inserts(
        {1: rates},
        module="postgres",
        options={"module": {"create_indices": created}, **options},
        environment=ENVIRONMENT | {"database": database},
    )
    for run in result.writers:
        sizes = dict.fromkeys(indexes, 1_000_000)
        run.group.storage = Storage(total_bytes=10_000_000, indexes=sizes)
    return result


def test_each_candidate_is_compared_with_the_one_that_lacks_least() -> None:
    measured = {
        "plain": [make(FAST, KEY)],
        "device": [make([70.0, 71.0, 69.0], KEY, BY_DEVICE, created="before")],
        "both": [make(SLOW, KEY, BY_DEVICE, BY_TIME, created="before")],
    }
    costs = find_index_costs(measured)
    assert [cost.without for cost in costs.values()] == [None, "plain", "device"]
    assert [cost.share for cost in costs.values()] == pytest.approx([0.1, 0.2, 0.3])
    speeds = [cost.speed.value for cost in costs.values() if cost.speed]
    assert speeds == pytest.approx([0.7, 50 / 70], rel=1e-3)


@pytest.mark.parametrize(
    ("change", "built"),
    [
        # Another load, or another rate, is no cost of indexes; nor is what is built later.
        ({"batch": 7}, False), ({"rate_per_s": 100.0}, False), ({"seed": 7}, False), ({}, True),
    ],
)  # fmt: skip
def test_only_candidates_that_differ_in_nothing_else_tell_what_inserts_lose(
    change: dict[str, Any], built: bool
) -> None:
    plain, own = make(FAST, KEY), make(SLOW, KEY, BY_TIME, created="before", **change)
    if built:
        own.runs[0].index_build_s = 1.0
    cost = find_index_costs({"plain": [plain], "own": [own]})["own"]
    assert (cost.without, cost.speed) == (None, None)


def test_the_line_says_both_costs() -> None:
    measured = {"plain": [make(FAST)], "own": [make(SLOW, BY_DEVICE, created="before")]}
    [line] = describe_index_costs(measured)
    assert line.startswith(
        "own: its indexes take 10% of 10 MB on disk (b btree (boiler, at) 1 MB); inserts compared with"
        " plain: 2.00× slower (1."
    )
    [line] = describe_index_costs({"own": measured["own"]})
    assert line.endswith("; their cost to inserts was not measured.")
    single = {"plain": [make([100.0])], "own": [make([50.0], BY_TIME, created="before")]}
    assert describe_index_costs(single)[0].endswith("2.00× slower, from single runs.")
    assert describe_index_costs({"plain": measured["plain"]}) == []


def test_a_result_lists_its_indexes_the_largest_first() -> None:
    result = make(FAST, KEY, BY_TIME)
    [run, *_] = result.writers[-1:]
    assert run.group.storage is not None
    run.group.storage.indexes = {KEY: 1_000_000, BY_TIME: 2_500_000}
    rows = tabulate_indexes(result).rows
    assert [row[:3] for row in rows] == [[BY_TIME, "2.5", "25%"], [KEY, "1.0", "10%"]]
    assert tabulate_indexes(inserts({1: FAST})).rows == []
