"""A rule for each thing that can hold a run back."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.bottleneck import Limit, find_bottleneck
from simulator.contract import Client, InsertRun, Machine, Offered, Resources

CLIENT = Client(
    cpu_s=1.0, cpu_share=0.2, generate_s=0.1, encode_s=0.1, ceiling_share=0.1, throttled_share=None,
    in_flight=1, bound=False,
)  # fmt: skip
OFFERED = Offered(
    rate_per_s=1000, due=1, achieved=1, backlog_max=0, backlog_growth=0, saturated=False
)


def make_run(cpu_share: float | None = 0.3, disk: float = 0.1, **changes: Any) -> InsertRun:
    used = Resources(
        cpu_s=None if cpu_share is None else 10 * cpu_share, cpus=2, cpu_share=cpu_share,
        cpu_us_per_event=3.14159, disk_busy_share=disk,
    )  # fmt: skip
    values = {
        "workers": 1, "run": 1, "fill_level": 0, "valid": True, "invalid_reasons": [],
        "inserts_per_s": 1e5, "client": CLIENT, "resources": used,
        "machines": [Machine(node="n", cpus=2, busy_share=0.5)],
    }  # fmt: skip
    return InsertRun(**(values | changes))


BOUND = CLIENT.model_copy(update={"bound": True, "bound_reason": "a worker was busy"})
BUSY = [Machine(node="n", cpus=2, busy_share=0.97)]


@pytest.mark.parametrize(
    ("run", "limit"),
    [
        (make_run(0.95, client=BOUND), Limit.CLIENT),
        (make_run(0.86, disk=0.99), Limit.DATABASE),
        (make_run(0.84, disk=0.86, machines=BUSY), Limit.DISK),
        (make_run(0.5, machines=BUSY), Limit.MACHINE),
        # Workers on other machines than the database say nothing of its own.
        (make_run(0.7, machines=[*BUSY, *BUSY]), Limit.UNKNOWN),
        (make_run(0.5), Limit.WAITING),
        (make_run(0.7), Limit.UNKNOWN),
        (make_run(None), Limit.UNKNOWN),
        (make_run(resources=None), Limit.UNKNOWN),
        (make_run(0.95, offered=OFFERED), Limit.NOTHING),
        (
            make_run(0.95, offered=OFFERED.model_copy(update={"saturated": True})),
            Limit.DATABASE,
        ),
    ],
)
def test_what_held_a_run_back(run: InsertRun, limit: Limit) -> None:
    found = find_bottleneck(run)
    assert found is not None
    assert found.limit is limit


def test_the_evidence_has_both_sides() -> None:
    found = find_bottleneck(make_run(0.5))
    assert found is not None
    assert "the database used 50% of 2 CPUs, 3.14 µs of CPU per event" in found.evidence
    assert "the workers 20% of a CPU each" in found.evidence
    assert "more requests in flight" in found.evidence


@pytest.mark.parametrize("changes", [{"valid": False}, {"inserts_per_s": None}, {"client": None}])
def test_a_run_without_figures_has_no_bottleneck(changes: dict[str, Any]) -> None:
    assert find_bottleneck(make_run(**changes)) is None
