"""Which of the stored results are meant."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.results.index import ResultLine, Selection
from cli.results.store import make_line

from ..made import inserts, stored

RESULTS: list[ResultLine] = [
    make_line(
        stored(
            inserts({1: [1.0]}, target, started_at=f"2026-11-2{number}T08:00:00+00:00", tags=tags),
            str(number),
        )
    )
    for number, (target, tags) in enumerate(
        [
            ("alpha", {}),
            ("beta", {"build": "1"}),
            ("alpha", {"build": "2", "disk": "nvme"}),
            ("beta", {}),
        ]
    )
]


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (Selection(), "0123"),
        (Selection(targets=["alpha"]), "02"),
        (Selection(targets=["alpha", "beta"]), "0123"),
        (Selection(tags=[("build", "2")]), "2"),
        (Selection(tags=[("build", "2"), ("disk", "nvme")]), "2"),
        (Selection(tags=[("build", "1"), ("disk", "nvme")]), ""),
        (Selection(since=datetime(2026, 11, 21, 8, tzinfo=UTC)), "123"),
        (Selection(last=2), "23"),
        (Selection(last=9), "0123"),
        (Selection(targets=["alpha"], last=1), "2"),
    ],
)
def test_selection(selection: Selection, ids: str) -> None:
    assert [line.id for line in selection.choose(RESULTS)] == list(ids)
