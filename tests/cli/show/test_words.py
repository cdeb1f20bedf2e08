"""A result in plain words: what was measured, the answer, its limitations."""

from __future__ import annotations

import pytest

from cli.results.naming import name_database
from cli.show import words

from ..made import ENVIRONMENT, inserts, open_loop, queries, steps

MANY = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def test_what_was_measured() -> None:
    assert words.describe_measurement(inserts({1: MANY, 4: MANY}, options={"runs": 6})) == (
        "Inserts into alpha (PostgreSQL 18.4) by 1 and 4 workers at once, 1,000 events each, 100 in a"
        " request (copy), primary key: db, 6 runs of each worker count, from processes on one machine"
        " on 2025-01-02."
    )
    single = inserts({1: MANY}, options={"batch": 0, "insert_mode": "single", "prefill": 5000})
    assert "one in a request (single)" in words.describe_measurement(single)
    assert "with 5,000 events inserted before" in words.describe_measurement(single)
    options = {"prefill_span_s": 2_592_000, "prefill_every_s": 600}
    on_history = words.describe_measurement(inserts({1: MANY}, options=options))
    assert "on a history of 30d, one event per device every 10m" in on_history
    assert "3 steps on growing data" in words.describe_measurement(steps({0: 1.0, 5: 2.0, 9: 1.0}))
    assert words.describe_measurement(queries({"q": [1.0]}, executor="kubernetes")) == (
        "Queries to alpha (PostgreSQL 18.4) by 1 worker, each query 3 times, from pods on Kubernetes"
        " on 2025-01-02."
    )


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc", "PostgreSQL 18.4"),
        ("PostgreSQL 18.4 on x86_64, compiled; TimescaleDB 2.27", "PostgreSQL 18.4; TimescaleDB 2.27"),
        ("elasticsearch 9.1.4 (Lucene 10.2)", "elasticsearch 9.1.4"),
        (None, None),
    ],
)  # fmt: skip
def test_a_servers_version_is_short(version: str | None, shown: str | None) -> None:
    result = inserts({1: MANY}, environment=ENVIRONMENT | {"database": {"version": version}})
    assert name_database(result) == shown


def test_the_answer() -> None:
    assert words.give_answer(inserts({1: MANY, 4: [7.0]})).startswith(
        "Most with 1 worker: 102 inserts/s (median of 6 valid runs; mean 102, 95 % interval 101 to 104)"
    )
    assert words.give_answer(inserts({2: [1234.4]})) == (
        "Most with 2 workers: 1,234 inserts/s in a single run."
    )
    assert words.give_answer(steps({0: 200.0, 5000: 150.0})) == (
        "200 inserts/s at level 0, 150 at level 5,000: -25%."
    )
    assert words.give_answer(steps({0: 200.0, 5000: 199.9})).endswith("less than 1% apart.")
    assert words.give_answer(queries({"slow": [2.0, 4.0], "fast": [0.5]})) == (
        "On average a query took: fast 500 ms (the first time 8,000 ms), slow 3,000 ms (the first time"
        " 8,000 ms)."
    )


def test_a_query_asked_once_has_one_figure() -> None:
    assert (
        words.give_answer(queries({"q": [0.5]}, cold=None)) == "On average a query took: q 500 ms."
    )


def test_an_open_loop_in_words() -> None:
    result = open_loop({2: [1000.0, 1002.0]}, options={"in_flight": 4})
    assert (
        "1,000 events/s offered (poisson arrivals), for 21 s, of which the first 1 s (warm-up) don't"
        " count, 4 requests in flight each, 100 in a request (copy)"
    ) in words.describe_measurement(result)
    assert words.give_answer(result) == (
        "2 workers kept up with 1,000 events/s: 1,001 inserts/s, response time p50 1.5 ms,"
        " p99 5 ms."
    )
    assert words.write_headline(result) == "1,001 inserts/s with 2 workers, response p99 5 ms"
    for group_run in result.writers:
        assert group_run.group.latency_ms is not None
        group_run.group.latency_ms.p99 = 4750.6
    assert words.write_headline(result).endswith("response p99 4,751 ms")
    result = open_loop({2: [800.0]}, saturated=True)
    assert (
        "2 workers did not keep up with 1,000 events/s (saturated): 800 inserts/s"
        in words.give_answer(result)
    )
    assert (
        words.write_headline(result) == "800 of 1,000 inserts/s with 2 workers, response p99 4 ms"
    )


def test_a_warm_up_without_a_duration_is_part_of_nothing() -> None:
    result = inserts({1: [100.0]}, options={"num_inserts": 100, "warm_up_s": 5.0})
    assert "1 worker at once, not counting the first 5 s (warm-up), " in words.describe_measurement(
        result
    )


def test_what_readers_were_offered_is_said() -> None:
    for options, text in (
        ({}, "beside 2 readers, "),
        ({"query_rate_per_s": 5.0}, "readers (5 queries/s offered), "),
        ({"reader_in_flight": 8}, "beside 2 readers with 8 queries in flight each, "),
        ({"reader_in_flight": 1}, "beside 2 readers, "),
    ):
        result = inserts({1: [100.0]}, options={"readers": 2, **options})
        assert text in words.describe_measurement(result)


def test_questions_in_flight_are_said() -> None:
    result = queries({"q": [0.5]}, options={"workers": 2, "runs": 3, "reader_in_flight": 8})
    text = words.describe_measurement(result)
    assert "by 2 workers at once with 8 queries in flight each, each query 3 times" in text


def test_no_answer() -> None:
    assert words.give_answer(inserts({})) == "No run is valid: there is no figure to use."
    assert (
        words.give_answer(queries({"q": [None]}, cold=None))
        == "No query was answered: there is no figure."
    )


def test_the_answer_tells_what_it_costs() -> None:
    answer = words.give_answer(inserts({1: [1000.0]}, cost_per_hour=0.5))
    assert "at 0.5 an hour, 0.14 per million events" in answer


def test_figures_of_others_are_named_as_such() -> None:
    result = inserts({1: MANY}, source="read off a picture")
    assert words.describe_measurement(result) == (
        "Figures for alpha (PostgreSQL 18.4), not measured by this tool: read off a picture."
    )


def test_headlines() -> None:
    assert words.write_headline(inserts({1: MANY, 4: [900.0]})) == "900 inserts/s with 4 workers"
    assert words.write_headline(inserts({})) == "no valid run"
    assert words.write_headline(queries({"q": [1.0]})) == "1 query, 1,000 to 1,000 ms"
    assert (
        words.write_headline(queries({"q": [1.0]}, fill_level=5000))
        == "1 query, 1,000 to 1,000 ms, level 5,000"
    )
    assert words.write_headline(steps({0: 200.0, 5000: 150.0})) == (
        "200 to 150 inserts/s, level 0 to 5,000"
    )
    assert words.write_headline(queries({"a": [2.0], "b": [0.25]})) == "2 queries, 250 to 2,000 ms"
    assert words.write_headline(queries({"a": [None]}, cold=None)) == "no query answered"


def test_valid_and_stable() -> None:
    good = inserts({1: MANY})
    assert (words.describe_validity(good), words.describe_stability(good)) == ("yes", "yes")
    bad = inserts({1: [100.0, 200.0, 100.0]}, complete=False)
    bad.writers[0].group.invalid_reasons = ["lost"]
    assert (words.describe_validity(bad), words.describe_stability(bad)) == (
        "1 of 3 not, incomplete",
        "no",
    )
    assert words.describe_stability(inserts({1: [100.0]})) == "-"
    assert words.describe_stability(queries({"a": [1.0, 2.0]})) == "no"
    assert words.describe_stability(queries({"a": MANY})) == "yes"
    assert words.describe_stability(queries({"a": [1.0]})) == "-"
    assert words.describe_validity(queries({"a": [1.0]}, invalid_reasons=["x"])) == "no"
    assert words.describe_validity(inserts({})) == "no runs"
