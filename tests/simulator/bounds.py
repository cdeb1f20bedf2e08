"""Queries with the parameters of several executions, as a reader draws them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from simulator.contract import StoredPart
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQueries, Stored, draw_block
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature

each_workload = pytest.mark.parametrize(
    "workload",
    [load_workload("machines")(devices=50), Temperature(device_spread=3), Cpu(device_spread=3)],
    ids=lambda workload: workload.name,
)


def make_bounds(query: Query | None) -> BoundQueries:
    """Three executions of a query: of usual devices and times, and of the first ones."""
    assert query is not None
    count = query.devices if isinstance(query.devices, int) else 0
    names = np.array([[b"w00000d%06d" % (9 * i + j) for j in range(count)] for i in range(3)])
    starts = np.array([1_700_000_000_000, 5, 1_800_000_000_000])
    spans = 1 if query.instant else np.array([3_600_000, 2, 86_400_000])
    is_windowed = query.window is not None or query.instant
    return BoundQueries(
        query, 3, names if count else None, starts if is_windowed else None,
        starts + spans if is_windowed else None,
    )  # fmt: skip


def draw_blocks(workload: Workload) -> Iterator[BoundQueries]:
    """Twenty executions of each of a workload's queries that has parameters."""
    stored = Stored(workload, [StoredPart(0, 0, 1000)])
    drawn = (query for query in workload.schema.descriptions if query.is_drawn)
    return (draw_block(query, stored, 3, 5, 20) for query in drawn)
