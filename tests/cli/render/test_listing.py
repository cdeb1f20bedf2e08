"""The list of results."""

from __future__ import annotations

import pytest

from cli.render.stored import tabulate_results, write_cells
from cli.results.index import ResultLine
from cli.results.store import make_line

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
    return [make_line(one, write_cells) for one in results]


def test_everything_where_there_is_room() -> None:
    table = tabulate_results(make_list())
    assert list(table.headers) == [
        "ID", "When", "Command", "Target", "Database", "Label", "Headline", "Valid", "Stable", "Options",
    ]  # fmt: skip
    assert [list(row)[1:] for row in table.rows] == [
        ["2025-01-02 03:04", "insert", "alpha", "PostgreSQL 18.4", "-", "10 inserts/s with 4 workers",
         "yes", "yes", "num_inserts=1000 batch=10 copy_format=text"],
        ["2025-01-02 03:04", "insert", "alpha", "PostgreSQL 18.4", "after the upgrade",
         "20 inserts/s with 4 workers", "yes", "yes", "num_inserts=1000 batch=100"],
        ["2025-01-02 03:04", "query", "alpha", "PostgreSQL 18.4", "-", "1 query, 500 to 500 ms", "yes",
         "-", "-"],
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 132, 160])
def test_a_terminal_has_room_for_each_line(width: int) -> None:
    text = tabulate_results(make_list(), width).text()
    assert max(map(len, text.splitlines())) <= width
    # What no other column says stays.
    assert "10 inserts/s with" in text and "20250102T030405Z-insert-alpha" in text
    assert "after the u" in text


def test_the_id_says_what_is_left_out_first() -> None:
    assert list(tabulate_results(make_list(), 132).headers) == [
        "ID", "Database", "Label", "Headline", "Valid", "Stable", "Options",
    ]  # fmt: skip
