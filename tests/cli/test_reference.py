"""docs/reference/ is what the code makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.generate import FOLDER, PAGES, make_keys, make_options, make_schema, write_man_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", list(PAGES))
def test_the_page_in_docs_is_that_of_the_code(page: str) -> None:
    stored = (ROOT / FOLDER / page).read_text(encoding="utf-8")
    assert stored == PAGES[page](), "make it anew: .venv/bin/python -m docs.generate"


def test_the_schema_has_what_each_command_keeps() -> None:
    schema = json.loads(make_schema())
    assert {"command", "runs", "baseline", "options"} <= set(schema["properties"])
    assert {"RunResult", "GroupResult", "QueryResult", "Execution", "Offered", "LatencyMs"} <= set(
        schema["$defs"]
    )
    assert schema["properties"]["format"]["const"] == 2


def test_options_of_commands_below_commands_are_there() -> None:
    page = make_options()
    assert "\n## insert\n" in page
    assert "\n## results show\n" in page
    assert "`--fail-if" in page


@pytest.mark.parametrize(
    "line",
    [
        "| `settle` | number | `0.0` | Seconds between two jobs. |",
        "| `devices` | [Devices](#workload-devices) |",
        "### Campaign: Requirements",
    ],
)
def test_keys_have_kinds_defaults_and_meanings(line: str) -> None:
    assert line in make_keys()


def test_every_key_of_a_file_has_a_meaning() -> None:
    empty = [
        line
        for line in make_keys().splitlines()
        if line.startswith("| `") and line.endswith("|  |")
    ]
    assert empty == []


def test_every_command_has_a_page_of_the_manual(tmp_path: Path) -> None:
    write_man_pages(tmp_path / "man")
    names = {page.name for page in (tmp_path / "man").iterdir()}
    assert {"iotbench.1", "iotbench-insert.1", "iotbench-results-show.1"} <= names
    text = (tmp_path / "man" / "iotbench-insert.1").read_text()
    assert text.startswith('.TH "IOTBENCH INSERT"')
    assert "\\-\\-workers" in text
