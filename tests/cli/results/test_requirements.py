"""What a user may require, and the rows of the verdict that follow."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cli.results.requirements import Requirements, list_rows

WHOLE = """
devices: 8000
insert: {p99: 250ms, batch: 50, error_share: 0.1%}
queries:
  last-per-machine: {p99: 1s, rate: 2}
  hourly-week: {p90: 2s, rate: 0.5}
history: {span: 30d}
retention: 90d
disk: 2TB
cost_per_month: 800
faults: {kill-server: 60s, run  ./pull.sh now: 1m}
"""


def _read(**changes: Any) -> Requirements:
    document = yaml.safe_load(WHOLE) | changes
    return Requirements.model_validate({k: v for k, v in document.items() if v is not None})


def test_each_is_a_row() -> None:
    rows = [(row.key, row.heading, row.limit) for row in list_rows(_read(), 800.0)]
    assert rows == [
        ("events_per_s", "load (8,000 devices)", "≥ 800 events/s"),
        ("insert.p99", "inserts p99", "≤ 250 ms"),
        ("insert.error_share", "inserts error_share", "≤ 0.1%"),
        ("queries.last-per-machine.p99", "last-per-machine p99", "≤ 1,000 ms"),
        ("queries.hourly-week.p90", "hourly-week p90", "≤ 2,000 ms"),
        ("disk", "disk", "≤ 2 TB"),
        ("cost_per_month", "cost per month", "≤ 800"),
        ("faults.kill-server", "outage by kill-server", "≤ 60 s"),
        # As a mark has it.
        ("faults.run ./pull.sh now", "outage by run ./pull.sh now", "≤ 60 s"),
    ]


def test_a_fleet_that_is_cut_off_has_a_time_to_catch_up_in() -> None:
    *_, row = list_rows(_read(faults={"pause-fleet 10m": "2m"}), 800.0)
    assert (row.heading, row.limit) == ("catching up after pause-fleet 10m", "≤ 120 s")


def test_history_is_a_number_of_events() -> None:
    long = _read().history
    assert long is not None
    assert long.count_events(800.0, None) == 30 * 86_400 * 800
    short = _read(history={"events": "2M"}).history
    assert short is not None
    assert short.count_events(800.0, None) == 2_000_000
    part = _read(history={"share": "3%"}).history
    assert part is not None
    assert part.count_events(800.0, 6_000_000_000) == 180_000_000
    timed = _read(history={"time": "20m"}).history
    assert timed is not None
    assert (timed.time, timed.count_events(800.0, 6_000_000_000)) == (1200, 0)


def test_with_a_retention_there_is_a_history() -> None:
    kept = _read(history=None).history
    assert kept is not None
    assert kept.time == 600
    assert _read(history=None, retention=None, disk=None).history is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": None}, "give either devices or events_per_s"),
        ({"events_per_s": 800}, "give either devices or events_per_s"),
        ({"devices": 1.5}, "write a whole number above 0"),
        ({"devices": True}, "write a number above 0"),
        ({"devices": "many"}, "write a number above 0"),
        ({"insert": {"p99": 250}}, "write a time above 0 with its unit, as in 250ms"),
        ({"insert": {"p99": "0ms"}}, "write a time above 0 with its unit"),
        ({"insert": {"error_share": "200%"}}, "write a share"),
        ({"queries": {"a": {"p99": "1s"}}}, "Field required"),
        ({"queries": {"a": {"rate": 1}}}, "give a limit, as in p99: 1s"),
        (
            {"history": {"every": "10m"}},
            "give one of share (3%), events (10M), time (20m) and span",
        ),
        ({"history": {"events": 5, "every": "10m"}}, "`every` goes with a span, as in {span: 30d"),
        ({"history": {"span": "5m", "every": "10m"}}, "a span of 5m has no event every 10m"),
        ({"history": {}}, "give one of share (3%), events (10M), time (20m) and span"),
        ({"history": {"span": "1d", "events": 5}}, "give one of share"),
        ({"history": {"share": "3%", "time": "20m"}}, "give one of share"),
        ({"history": {"share": 0}}, "write a share above 0, as in 3%"),
        (
            {"history": {"share": "3%"}, "retention": None, "disk": None},
            "history.share needs `retention`",
        ),
        ({"retention": "90"}, "write a time above 0 with its unit"),
        ({"retention": None}, "disk needs `retention`"),
        ({"disk": "2 terabytes"}, "write a size with its unit, as in 500GB or 2TB"),
        ({"disk": 2}, "write a size with its unit"),
        ({"cost_per_month": "free"}, "write a number above 0"),
        ({"cost_per_month": -1}, "write a number above 0"),
        ({"faults": {"kill-servr": "60s"}}, "did you mean kill-server?"),
        ({"faults": {"kill-server": 60}}, "write a time above 0 with its unit"),
        ({"faults": {"scale": "60s"}}, "write"),
    ],
)
def test_mistakes_have_a_remedy(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _read(**changes)
    assert said in str(refused.value)


def test_a_long_value_isnt_repeated_whole() -> None:
    with pytest.raises(ValidationError) as refused:
        _read(disk="x" * 5000)
    assert len(refused.value.errors()[0]["msg"]) < 200
