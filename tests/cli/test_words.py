"""A result in plain words: what was measured, the answer, what weakens it."""

from __future__ import annotations

import pytest

from cli.results.comparison import compared
from cli.results.store import read_result
from cli.show import words

from .made import ENVIRONMENT, client, inserts, queries, steps
from .test_tables import STORED

MANY = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def kinds(found: list[words.Weakness]) -> list[str]:
    return [one.kind for one in found]


def test_what_was_measured() -> None:
    assert words.measured(inserts({1: MANY, 4: MANY}, options={"runs": 6})) == (
        "Inserts into alpha (PostgreSQL 18.4) by 1 and 4 workers at once, 1,000 events each, 100 in a"
        " request (copy), primary key: db, 6 runs of each worker count, from processes on one machine"
        " on 2025-01-02."
    )
    single = inserts({1: MANY}, options={"batch": 0, "insert_mode": "single", "prefill": 5000})
    assert "each a request of its own (single)" in words.measured(single)
    assert "with 5,000 events there before" in words.measured(single)
    assert "3 steps on growing data" in words.measured(steps({0: 1.0, 5: 2.0, 9: 1.0}))
    assert words.measured(queries({"q": [1.0]}, executor="kubernetes")) == (
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
    assert words.database(result) == shown


def test_the_answer() -> None:
    assert words.answer(inserts({1: MANY, 4: [7.0]})).startswith(
        "Most with 1 worker: 102 inserts/s (median of 6 valid runs; mean 102, 95 % interval 101 to 104)"
    )
    assert words.answer(inserts({2: [1234.4]})) == (
        "Most with 2 workers: 1,234 inserts/s in a single run."
    )
    assert words.answer(steps({0: 200.0, 5000: 150.0})) == (
        "200 inserts/s at level 0, 150 at level 5,000: -25%."
    )
    assert words.answer(queries({"slow": [2.0, 4.0], "fast": [0.5]})) == (
        "On average a query took: fast 0.5 s, slow 3 s."
    )


def test_no_answer() -> None:
    assert words.answer(inserts({})) == "No run is valid: there is no figure to use."
    assert words.answer(queries({"q": [None]})) == "No query was answered: there is no figure."


def test_the_answer_tells_what_it_costs() -> None:
    answer = words.answer(inserts({1: [1000.0]}, cost_per_hour=0.5))
    assert "at a cost of 0.5 an hour, one unit of money pays for 7,200,000 events" in answer


def test_nothing_weakens_many_long_runs() -> None:
    assert words.weaknesses(inserts({1: MANY})) == []


def test_everything_that_weakens_is_said() -> None:
    result = inserts({1: [100.0, 200.0], 2: MANY, 3: [5.0]}, complete=False)
    first, _, bound, *_, last = result.insert_runs
    first.valid, first.invalid_reasons = False, ["lost 7"]
    bound.client = client(0.9, bound=True)
    last.window_s = 0.5
    summary = inserts({1: [100.0, 200.0], 2: MANY, 3: [5.0]}).insert_summary
    result = result.model_copy(update={"summary": summary})
    found = words.weaknesses(result)
    assert set(kinds(found)) == {
        "incomplete", "invalid", "client-bound", "short", "unstable", "few runs",
    }  # fmt: skip
    assert kinds(found)[0] == "incomplete"
    texts = {one.kind: one.text for one in found}
    assert "~~100~~ lost 7" in texts["invalid"]
    assert texts["few runs"] == "a single valid run with 3 workers says nothing of its spread"


def test_steps_are_single_runs() -> None:
    assert kinds(words.weaknesses(steps({0: 1.0, 5: 2.0}))) == ["few runs"]


def test_figures_of_others_are_named_as_such() -> None:
    result = inserts({1: MANY}, source="read off a picture")
    assert words.measured(result) == (
        "Figures for alpha (PostgreSQL 18.4), not measured by this tool: read off a picture."
    )
    assert words.weaknesses(result)[0] == words.Weakness(
        "not measured", "by this tool: read off a picture"
    )


def test_what_weakens_queries() -> None:
    assert kinds(words.weaknesses(read_result(STORED / "query.json"))) == [
        "invalid", "invalid", "unstable", "few runs",
    ]  # fmt: skip
    assert words.weaknesses(queries({"q": MANY})) == []


def test_headlines() -> None:
    assert words.headline(inserts({1: MANY, 4: [900.0]})) == "900 inserts/s with 4 workers"
    assert words.headline(inserts({})) == "no valid run"
    assert words.headline(queries({"q": [1.0]})) == "1 query, 1 to 1 s"
    assert (
        words.headline(queries({"q": [1.0]}, fill_level=5000)) == "1 query, 1 to 1 s, level 5,000"
    )
    assert words.headline(steps({0: 200.0, 5000: 150.0})) == (
        "200 to 150 inserts/s, level 0 to 5,000"
    )
    assert words.headline(queries({"a": [2.0], "b": [0.25]})) == "2 queries, 0.25 to 2 s"
    assert words.headline(queries({"a": [None]})) == "no query answered"


def test_valid_and_stable() -> None:
    good = inserts({1: MANY})
    assert (words.valid(good), words.stable(good)) == ("yes", "yes")
    bad = inserts({1: [100.0, 200.0]}, complete=False)
    bad.insert_runs[0].valid = False
    assert (words.valid(bad), words.stable(bad)) == ("1 of 2 not, incomplete", "no")
    assert words.stable(inserts({1: [100.0]})) == "-"
    assert words.stable(queries({"a": [1.0, 2.0]})) == "no"
    assert words.stable(queries({"a": MANY})) == "yes"
    assert words.stable(queries({"a": [1.0]})) == "-"
    assert words.valid(queries({"a": [1.0]}, invalid_reasons=["x"])) == "no"
    assert words.valid(inserts({})) == "no runs"


def test_comparisons_in_words() -> None:
    results = [inserts({4: [100.0, 101.0]}), inserts({4: [150.0, 151.0]}), inserts({4: [90.0]})]
    same = inserts({4: [100.5, 101.5]})
    first, second, third = words.comparison("abcd", compared([*results, same]))
    assert first.startswith("4 workers: b is 1.50 times as fast as a (95 % interval 1.4")
    assert second == "4 workers: c reaches 0.90 times the speed of a, from single runs."
    assert third.startswith("4 workers: no difference shown between d and a (95 % interval 0.9")
