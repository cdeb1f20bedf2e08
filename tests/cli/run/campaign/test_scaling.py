"""What more nodes bring."""

from __future__ import annotations

from cli.results.model import Result
from cli.show.campaign_charts import find_scaling
from cli.show.drawing import to_svg

from ...made import inserts, queries

_NODES: dict[str, tuple[str, int | None]] = {
    "a 1": ("a", 1), "a 3": ("a", 3), "b 1": ("b", 1), "c": ("c", None),
}  # fmt: skip


def _insert(rate: float) -> Result:
    return inserts({2: [rate / 2], 4: [rate]})


def test_rates_over_the_number_of_nodes() -> None:
    """Of each at its best number of workers, a sample for each repetition."""
    ((figure, table),) = find_scaling(
        "insert",
        _NODES,
        {
            "a 3": [_insert(250.0), _insert(230.0)],
            "a 1": [_insert(99.0), _insert(101.0)],
            "b 1": [_insert(50.0)],
            "c": [_insert(50.0)],
        },
    )
    # b has one number of nodes, and c has none.
    rows = [row for row in table.rows if row[0] == "a, 4 workers"]
    assert [(row[1], row[2], row[4], row[5]) for row in rows] == [
        ("1", "100", "1.00", "100%"), ("3", "240", "2.40", "80%"),
    ]  # fmt: skip
    assert {row[0] for row in table.rows} == {"a, 2 workers", "a, 4 workers"}
    assert "Number of nodes" in to_svg(figure.spec)


def test_query_times_are_faster_if_they_are_shorter() -> None:
    ((_, table),) = find_scaling(
        "query",
        _NODES,
        {
            "a 1": [queries({"count": [4.0, 4.0, 4.0]})],
            "a 3": [queries({"count": [1.0, 1.0, 1.0]})],
        },
    )
    assert [(row[0], row[4], row[5]) for row in table.rows] == [
        ("a", "1.00", "100%"), ("a", "4.00", "133%"),
    ]  # fmt: skip


def test_one_number_of_nodes_is_no_series() -> None:
    assert find_scaling("insert", _NODES, {"a 1": [_insert(1.0)]}) == []
    assert find_scaling("insert", _NODES, {"c": [_insert(1.0)]}) == []
