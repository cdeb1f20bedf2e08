"""What Prometheus is told, read as its own parser reads it."""

from __future__ import annotations

import re

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cli.run.live.server import write_metrics
from cli.run.live.state import Figures, JobState, Totals
from simulator.contract import DatabaseUse, GroupStatus, Phase, Role, Status

NASTY = 'in "quotes" \\ and\nlines'

FIGURES = Figures(
    command="mixed",
    target=NASTY,
    status=Status(
        phase=Phase.RUN,
        age_s=1.0,
        groups=[
            GroupStatus(
                role=Role.WRITE, done=5, rate_per_s=1234.5, recent_p50_ms=2.0, recent_p99_ms=12.5, backlog=7
            ),
            GroupStatus(role=Role.READ, done=2, rate_per_s=3.0, rows_per_s=5e6, bytes_per_s=7e7),
        ],
        elapsed_s=4.5,
        quiet_s=0.25,
        database=DatabaseUse(cpus_used=1.5, cpus=2.0),
    ),
    totals={Role.WRITE: Totals(done=10, retries=3), Role.READ: Totals(done=4, failed=1)},
    runs_ended=2,
    marks=1,
    jobs={JobState.DONE: 3, JobState.LEFT: 0},
)  # fmt: skip


def read(figures: Figures) -> dict[str, Metric]:
    text = write_metrics(figures)
    assert text.endswith("\n")
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    return {family.name.removeprefix("iot_benchmark_"): family for family in families}


def values(family: Metric) -> dict[str, float]:
    """By the value of the last label."""
    return {next(reversed(sample.labels.values()), ""): sample.value for sample in family.samples}


def test_all_figures_are_there_in_base_units() -> None:
    metrics = read(FIGURES)
    assert metrics["info"].samples[0].labels["target"] == NASTY
    assert values(metrics["events"]) == {"": 10}
    assert values(metrics["queries"]) == {"": 4}
    assert values(metrics["retries"]) == {"write": 3, "read": 0}
    assert values(metrics["failed_queries"]) == {"": 1}
    assert values(metrics["runs"]) == {"": 2}
    assert values(metrics["disturbances"]) == {"": 1}
    assert values(metrics["events_per_second"]) == {"write": 1234.5}
    assert values(metrics["queries_per_second"]) == {"read": 3.0}
    assert values(metrics["backlog_events"]) == {"write": 7}
    assert values(metrics["answer_rows_per_second"]) == {"read": 5e6}
    assert values(metrics["answer_bytes_per_second"]) == {"read": 7e7}
    assert values(metrics["recent_p50_seconds"]) == {"write": 0.002}
    assert values(metrics["recent_p99_seconds"]) == {"write": 0.0125}
    assert values(metrics["database_cpus_used"]) == {"": 1.5}
    assert values(metrics["database_cpus_limit"]) == {"": 2}
    assert values(metrics["quiet_seconds"]) == {"": 0.25}
    assert values(metrics["elapsed_seconds"]) == {"": 4.5}
    assert values(metrics["campaign_jobs"]) == {"done": 3, "left": 0}
    phases = values(metrics["phase"])
    assert phases.keys() == set(Phase)
    assert [phase for phase, value in phases.items() if value] == ["run"]
    assert "backlog_queries" not in metrics  # of a closed loop


def test_counters_are_those_that_end_in_total() -> None:
    for line in write_metrics(FIGURES).splitlines():
        if kind := re.fullmatch(r"# TYPE (\w+) (\w+)", line):
            assert (kind[2] == "counter") == kind[1].endswith("_total")
    for family in read(FIGURES).values():
        assert family.documentation.endswith(".")


def test_between_runs_nothing_is_told_of_any() -> None:
    """A figure that isn't known is left out, which Prometheus draws as a gap."""
    idle = Figures("insert", "x", None, {}, 0, 0, {})
    assert read(idle).keys() == {"info", "runs", "disturbances"}
