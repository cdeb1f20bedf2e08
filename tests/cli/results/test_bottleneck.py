"""A rule for each thing that can hold a run back."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.bottleneck import Limit, find_bottleneck, find_bottlenecks
from cli.results.caveats import Place
from simulator.contract import (
    Client,
    GroupResult,
    Machine,
    Offered,
    QueryResult,
    Resources,
    Role,
    RunResult,
)

from ...helpers import insert_run
from ..made import queries

CLIENT = Client(
    cpu_s=1.0, cpu_share=0.2, generate_s=0.1, encode_s=0.1, ceiling_share=0.1, throttled_share=None,
    in_flight=1, bound=False,
)  # fmt: skip
OFFERED = Offered(
    rate_per_s=1000, due=1, achieved=1, backlog_max=0, backlog_growth=0, saturated=False
)
LATE = OFFERED.model_copy(update={"own_delay_p99_ms": 13.0})


def make_run(cpu_share: float | None = 0.3, disk: float = 0.1, **changes: Any) -> RunResult:
    used = Resources(
        cpu_s=None if cpu_share is None else 10 * cpu_share, cpus=2, cpu_share=cpu_share,
        cpu_us_per_event=3.14159, disk_busy_share=disk,
    )  # fmt: skip
    values: dict[str, Any] = {
        "window_s": 10.0, "workers": 1, "rate_per_s": 1e5, "client": CLIENT, "resources": used,
        "machines": [Machine(node="n", cpus=2, busy_share=0.5)],
    }  # fmt: skip
    return insert_run(**(values | changes))


def used_by_pods(**changes: Any) -> Resources:
    """The use of three pods on a node each."""
    values = {
        "source": "the kubelets, every 10 s", "names": ["d/0", "d/1", "d/2"],
        "nodes": ["n1", "n2", "n3"], "cpu_s": 6.0, "cpus": 6, "cpu_share": 0.1, "busiest": "d/1",
        "busiest_share": 0.3, "received_bytes": 250_000_000, "sent_bytes": 1000,
    }  # fmt: skip
    return Resources(**(values | changes))


BOUND = CLIENT.model_copy(update={"bound": True, "bound_reason": "a worker was busy"})
BUSY = [Machine(node="n", cpus=2, busy_share=0.97)]
LINKED = Machine(node="l", link_share=0.9)


@pytest.mark.parametrize(
    ("run", "limit"),
    [
        (make_run(0.95, client=BOUND), Limit.CLIENT),
        # It was late with CPU left.
        (make_run(0.95, client=BOUND, offered=LATE), Limit.GENERATOR),
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
        (make_run(resources=used_by_pods()), Limit.WAITING),
        # Of three nodes one has nothing left, or something.
        (make_run(resources=used_by_pods(busiest_share=0.9)), Limit.DATABASE),
        (make_run(resources=used_by_pods(busiest_share=0.7)), Limit.UNKNOWN),
        (make_run(resources=used_by_pods(link_share=0.86)), Limit.NETWORK),
        (make_run(resources=used_by_pods(link_share=0.84)), Limit.WAITING),
        (make_run(0.9, resources=used_by_pods(link_share=0.9, busiest_share=0.9)), Limit.DATABASE),
        (make_run(None, machines=[LINKED, *BUSY]), Limit.NETWORK),
        # Nobody but workers is on the machine that is busy, or the database is, too.
        (make_run(machines=BUSY, resources=used_by_pods()), Limit.UNKNOWN),
        (make_run(machines=BUSY, resources=used_by_pods(nodes=["n"])), Limit.MACHINE),
        (
            make_run(0.95, offered=OFFERED.model_copy(update={"saturated": True})),
            Limit.DATABASE,
        ),
    ],
)
def test_what_held_a_run_back(run: RunResult, limit: Limit) -> None:
    bottleneck = find_bottleneck(run)
    assert bottleneck is not None
    assert bottleneck.limit is limit


def test_the_evidence_has_both_sides() -> None:
    bottleneck = find_bottleneck(make_run(0.5))
    assert bottleneck is not None
    assert "the database used 50% of 2 CPUs, 3.14 µs of CPU per event" in bottleneck.evidence
    assert "the busiest worker 20% of a CPU" in bottleneck.evidence
    assert "more requests in flight" in bottleneck.evidence


def test_a_busy_client_has_the_databases_use_beside_it() -> None:
    """It shows how much the database had left, where that is known."""
    bottleneck = find_bottleneck(make_run(0.2, client=BOUND))
    assert bottleneck is not None
    assert bottleneck.evidence.startswith("a worker was busy; the database used 20% of 2 CPUs, ")
    for run in (make_run(None, client=BOUND), make_run(client=BOUND, resources=None)):
        bottleneck = find_bottleneck(run)
        assert bottleneck is not None
        assert bottleneck.evidence == "a worker was busy"


def test_the_evidence_names_pods_and_links() -> None:
    bottleneck = find_bottleneck(make_run(resources=used_by_pods(link_share=0.9)))
    assert bottleneck is not None
    assert bottleneck.evidence == (
        "the database's busiest link carried 90% of its capacity; the database used 10% of 6 CPUs,"
        " its busiest pod d/1 30% of its own, 25 MB/s over its network; the busiest worker 20% of a CPU"
    )
    bottleneck = find_bottleneck(make_run(None, machines=[LINKED]))
    assert bottleneck is not None
    assert bottleneck.evidence.startswith(
        "the link of l carried 90% of its capacity; what the database"
    )
    without_limit = used_by_pods(cpus=None, cpu_share=None, busiest_share=None)
    bottleneck = find_bottleneck(make_run(resources=without_limit))
    assert bottleneck is not None
    assert "used 6 s of CPU (number of CPUs unknown), 25 MB/s" in bottleneck.evidence


@pytest.mark.parametrize(
    "changes", [{"invalid_reasons": ["lost"]}, {"rate_per_s": None}, {"client": None}]
)
def test_a_run_without_figures_has_no_bottleneck(changes: dict[str, Any]) -> None:
    assert find_bottleneck(make_run(**changes)) is None


# --- readers --------------------------------------------------------------------------------------

ASKED = QueryResult(query="a", executions=100, rows=100, rows_min=1, rows_max=1)
PAUSING = CLIENT.model_copy(update={"pause_share": 0.1})


def make_read(run: RunResult | None = None, **changes: Any) -> RunResult:
    """A run with readers: in that of writers, or alone."""
    run = run or make_run()
    values: dict[str, Any] = {
        "window_s": 10.0, "workers": 1, "rate_per_s": 1e3, "client": PAUSING, "queries": [ASKED],
    }  # fmt: skip
    return run.model_copy(
        update={"groups": [GroupResult(role=Role.READ, **(values | changes))]}, deep=True
    )


@pytest.mark.parametrize(
    ("run", "limit"),
    [
        (make_read(make_run(0.95), client=BOUND), Limit.CLIENT),
        (make_read(make_run(0.86)), Limit.DATABASE),
        (make_read(make_run(disk=0.86)), Limit.DISK),
        (make_read(make_run(resources=used_by_pods(link_share=0.86))), Limit.NETWORK),
        (make_read(make_run(machines=BUSY)), Limit.MACHINE),
        (make_read(make_run()), Limit.WAITING),
        (make_read(make_run(0.95), offered=OFFERED), Limit.NOTHING),
    ],
)
def test_what_held_readers_back(run: RunResult, limit: Limit) -> None:
    bottleneck = find_bottleneck(run, Role.READ)
    assert bottleneck is not None
    assert bottleneck.limit is limit
    assert find_bottleneck(run) is None


def test_the_evidence_is_in_the_words_of_readers() -> None:
    waiting = find_bottleneck(make_read(), Role.READ)
    assert waiting is not None
    assert waiting.evidence.startswith("for disks, locks, or the network; ")
    assert "the busiest reader 20% of a CPU; more readers, or more requests in" in waiting.evidence
    kept_up = find_bottleneck(make_read(offered=OFFERED), Role.READ)
    assert kept_up is not None
    assert kept_up.evidence.startswith("kept up with 1,000 queries/s; ")


@pytest.mark.parametrize(
    "changes", [{"window_s": 0.9}, {"queries": [ASKED.model_copy(update={"rows": None})]}]
)
def test_readers_of_a_moment_or_of_an_older_version_are_not_judged(changes: dict[str, Any]) -> None:
    assert find_bottleneck(make_read(**changes), Role.READ) is None


def test_writers_and_readers_of_a_run_have_a_bottleneck_each() -> None:
    run = make_run(0.9)
    run.groups += make_read(client=BOUND).groups
    result = queries({"a": [1.0]}).model_copy(update={"command": "mixed", "runs": [run]})
    assert {place: bottleneck.limit for place, bottleneck in find_bottlenecks(result).items()} == {
        Place(workers=1): Limit.DATABASE,
        Place(workers=1, group="reader"): Limit.CLIENT,
    }
