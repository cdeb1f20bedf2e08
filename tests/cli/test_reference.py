"""docs/reference/ is what the code makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.results.kept import unpack
from docs.generate import (
    FOLDER,
    MANUAL,
    NOTEBOOK,
    PAGES,
    make_keys,
    make_man_pages,
    make_notebook,
    make_options,
    make_result_schema,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", list(PAGES))
def test_the_page_in_docs_is_that_of_the_code(page: str) -> None:
    stored = (ROOT / FOLDER / page).read_text(encoding="utf-8")
    assert stored == PAGES[page](), "make it anew: .venv/bin/python -m docs.generate"


def test_the_schema_has_what_each_command_keeps() -> None:
    schema = json.loads(make_result_schema())
    assert {"command", "runs", "baseline", "options"} <= set(schema["properties"])
    assert {"RunResult", "GroupResult", "QueryResult", "Execution", "Offered", "LatencyMs"} <= set(
        schema["$defs"]
    )
    assert schema["properties"]["format"]["const"] == 2


EXAMPLES = {
    "config": ("config.yaml", "comparison/config.yaml", "examples/*/config.yaml"),
    "workload": ("simulator/workloads/*.yaml",),
    "campaign": ("cli/run/campaign/*.yaml", "comparison/[!c]*.yaml", "examples/demo.yaml"),
}
FILES = [
    (kind, file)
    for kind, patterns in EXAMPLES.items()
    for pattern in patterns
    for file in sorted(ROOT.glob(pattern))
]


def validate(kind: str, document: Any) -> None:
    schema = json.loads((ROOT / FOLDER / f"{kind}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize(("kind", "file"), FILES, ids=lambda value: getattr(value, "name", value))
def test_each_example_names_its_schema_and_keeps_to_it(kind: str, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    schema = os.path.relpath(ROOT / FOLDER / f"{kind}.schema.json", file.parent)
    assert text.startswith(f"# yaml-language-server: $schema={schema}\n")
    validate(kind, yaml.safe_load(text))


@pytest.mark.parametrize(
    "file", sorted((ROOT / "comparison/results").iterdir()), ids=lambda p: p.name
)
def test_campaigns_that_were_run_keep_to_the_schema(file: Path) -> None:
    validate("campaign", yaml.safe_load((unpack(file) / "campaign.yaml").read_text("utf-8")))


@pytest.mark.parametrize(
    ("kind", "file", "way"),
    [
        ("config", "config.yaml", []),
        ("config", "config.yaml", ["kubernetes"]),
        ("config", "config.yaml", ["targets", "embedded"]),
        ("workload", "simulator/workloads/machines.yaml", []),
        ("workload", "simulator/workloads/machines.yaml", ["columns", 1]),
        ("campaign", "cli/run/campaign/example.yaml", []),
        ("campaign", "cli/run/campaign/example.yaml", ["steps", 0]),
        ("campaign", "cli/run/campaign/example.yaml", ["steps", 0, "insert"]),
        ("campaign", "comparison/fleet.yaml", ["targets", "cratedb"]),
        ("campaign", "comparison/fleet.yaml", ["requirements"]),
    ],
)  # fmt: skip
def test_a_misspelt_key_is_refused_wherever_it_stands(
    kind: str, file: str, way: list[str | int]
) -> None:
    document = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    part = document
    for key in way:
        part = part[key]
    validate(kind, document)
    part["mispelt"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validate(kind, document)


def test_options_of_commands_below_commands_are_there() -> None:
    page = make_options()
    assert "\n## insert\n" in page
    assert "\n## results show\n" in page
    assert "`--fail-if" in page


@pytest.mark.parametrize(
    "line",
    [
        "| `settle` | number | `0.0` | Pause between jobs, in seconds. |",
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


def test_every_command_has_a_page_of_the_manual() -> None:
    pages = make_man_pages()
    assert {"iotbench.1", "iotbench-insert.1", "iotbench-results-show.1"} <= pages.keys()
    stored = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / MANUAL).iterdir()}
    assert stored == pages, "make them anew: .venv/bin/python -m docs.generate"
    text = pages["iotbench-insert.1"]
    assert text.startswith('.TH "IOTBENCH INSERT"')
    assert "\\-\\-workers" in text


def test_the_notebook_shows_what_its_cells_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    stored = (ROOT / NOTEBOOK).read_text(encoding="utf-8")
    assert stored == make_notebook(), "make it anew: .venv/bin/python -m docs.generate"
    assert stored.count('"outputs": [\n') == stored.count('"cell_type": "code"')
