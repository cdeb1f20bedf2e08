"""Limits by which a comparison fails."""

from __future__ import annotations

import pytest

from cli.results.comparison import METRICS, collect_values, find_breaches, parse_threshold
from cli.results.figures import LIMITED, READERS
from cli.results.model import Result
from cli.system.errors import ConfigError
from simulator.contract import Resources

from ..made import client, inserts, queries

BASE = inserts({1: [100.0, 101.0, 99.0], 4: [300.0, 303.0, 297.0]})
# The highest p99 of each worker count is 6 ms, that of the third run.
SLOW = inserts({1: [50.0, 51.0, 49.0], 4: [290.0, 300.0, 310.0]}, "beta")


@pytest.mark.parametrize(
    ("limit", "failed"),
    [
        ("rate < 0.95 base", ["b at 1 worker: 0.500 of the first one's"]),
        ("rate < 0.4 base", []),
        # 4 workers are at 290 to 310 beside 297 to 303: nothing is shown.
        ("rate<=1 base", ["b at 1 worker: 0.500 of the first one's"]),
        ("rate < 0.06k", ["b at 1 worker: 50"]),
        ("p99 > 5ms", ["b at 1 worker: 6.000 ms", "b at 4 workers: 6.000 ms"]),
        ("p99 >= 0.006s", ["b at 1 worker: 6.000 ms", "b at 4 workers: 6.000 ms"]),
        ("p99 > 6,000us", []),
        ("p99.9 > 1.1 base", []),
        ("service_p99 > 1ms", ["b has no figure for it"]),
        ("query:count > 1s", ["b has no figure for it"]),
    ],
)
def test_inserts(limit: str, failed: list[str]) -> None:
    breaches = find_breaches("ab", [BASE, SLOW], [parse_threshold(limit)])
    assert breaches == [f"{limit}: {reason}" for reason in failed]


def test_queries() -> None:
    results = [queries({"count": [0.1, 0.1, 0.1]}), queries({"count": [0.2, 0.21, 0.19]})]
    limits = [parse_threshold(text) for text in ("query:count > 150ms", "query:count > 1.1 base")]
    assert find_breaches("ab", results, limits) == [
        "query:count > 150ms: b at count: 200.000 ms",
        "query:count > 1.1 base: b at count: 2.000 of the first one's",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p99", "p99 > 50ms"),
        ("p99 = 50ms", "p99 > 50ms"),
        ("speed > 1", "speed is not one of rate"),
        ("p99 > 50", "p99 > 50ms"),
        ("rate < 50ms", "rate < 20k"),
        ("rate < 1.2.3 base", "rate < 20k"),
        ("rate < 95%", "as in 'rate < 0.95 base'"),
        ("p99 > 110%", "as in 'p99 > 1.1 base'"),
        ("query: > 1s", "write a limit|is not one of"),
    ],
)
def test_what_is_no_limit(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_threshold(text)


def test_every_metric_has_a_value_where_it_was_measured() -> None:
    of_readers = {name for name in METRICS if LIMITED[name].roles == READERS}
    without = {"bytes_per_event", *(name for name in METRICS if name.startswith("service_"))}
    inserted = {name for name in METRICS if collect_values(BASE, name)}
    assert inserted == set(METRICS) - without - of_readers
    queried = {name for name in METRICS if collect_values(ask_alone(), name)}
    assert queried == of_readers | {"p50", "p90", "p99", "max"}


def ask_alone(p99_s: float = 0.25, cpu_s: float = 2.0) -> Result:
    """A query by number, with all that is known of readers."""
    result = queries({"a": [0.125] * 98 + [p99_s] * 2}, window_s=20.0, rate_per_s=5.0)
    run, [group_run] = result.runs[0], result.readers
    run.resources = Resources(cpu_s=cpu_s, disk_read_bytes=100)
    group_run.group.queries[0].rows, group_run.group.queries[0].bytes = 100, 1_000
    group_run.group.client = client(0.1).model_copy(update={"pause_share": 0.1})
    return result


def test_readers() -> None:
    """The times of each query, and the figures of the group."""
    results = [ask_alone(), ask_alone(p99_s=0.5, cpu_s=3.0)]
    texts = (
        "p99 > 300ms", "p50 > 300ms", "database_cpu_us_per_query > 1.4 base", "queries_per_s < 6",
    )  # fmt: skip
    assert find_breaches("ab", results, [parse_threshold(text) for text in texts]) == [
        "p99 > 300ms: b at a: 500.000 ms",
        "database_cpu_us_per_query > 1.4 base: b at 1 reader: 1.500 of the first one's",
        "queries_per_s < 6: b at 1 reader: 5",
    ]
