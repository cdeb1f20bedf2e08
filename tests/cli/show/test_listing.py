"""The list of results."""

from __future__ import annotations

import pytest
from tabulate import tabulate

from cli.results.index import ResultLine
from cli.results.store import make_line
from cli.show.listing import choose_columns, write_list
from cli.show.stored import write_cells

from ..made import inserts, queries, stored


def make_list() -> list[ResultLine]:
    changed = {"batch": 10, "module": {"copy_format": "text", "database_timeout_s": 5.0}}
    results = [
        stored(inserts({4: [10.0, 11.0]}, options=changed), "20250102T030405Z-insert-alpha"),
        stored(
            inserts({4: [20.0, 21.0]}, label="after the upgrade"), "20250102T030406Z-insert-alpha"
        ),
        stored(queries({"q": [0.5]}), "20250102T030407Z-query-alpha"),
    ]
    return [make_line(result, write_cells(result)) for result in results]


def test_everything_where_there_is_room() -> None:
    columns = choose_columns(make_list())
    assert list(columns) == [
        "ID", "When", "Command", "Target", "Database", "Label", "Headline", "Valid", "Stable", "Options",
    ]  # fmt: skip
    assert [list(row)[1:] for row in zip(*columns.values(), strict=True)] == [
        ["2025-01-02 03:04", "insert", "alpha", "PostgreSQL 18.4", "-", "10 inserts/s with 4 workers",
         "yes", "yes", "num_inserts=1000 batch=10 copy_format=text"],
        ["2025-01-02 03:04", "insert", "alpha", "PostgreSQL 18.4", "after the upgrade",
         "20 inserts/s with 4 workers", "yes", "yes", "num_inserts=1000 batch=100"],
        ["2025-01-02 03:04", "query", "alpha", "PostgreSQL 18.4", "-", "1 query, 500 to 500 ms", "yes",
         "-", "-"],
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 132, 160])
def test_a_terminal_has_room_for_each_line(width: int) -> None:
    text = write_list(make_list(), width)
    assert max(map(len, text.splitlines())) <= width
    # What no other column says stays.
    assert "10 inserts/s with" in text and "20250102T030405Z-insert-alpha" in text
    assert "after the u" in text


def test_the_id_says_what_is_left_out_first() -> None:
    assert list(choose_columns(make_list(), 132)) == [
        "ID", "Database", "Label", "Headline", "Valid", "Stable", "Options",
    ]  # fmt: skip


def test_columns_stand_below_their_headings() -> None:
    """As tabulate writes all other tables."""
    columns = choose_columns(make_list())
    table = tabulate(
        zip(*columns.values(), strict=True), list(columns), "plain", colalign=["left"] * 10
    )
    assert write_list(make_list()) == table
