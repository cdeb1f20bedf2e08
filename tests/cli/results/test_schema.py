"""docs/result.schema.json says what the models say."""

from __future__ import annotations

import json
from pathlib import Path

from cli.results.reference import make_schema

KEPT = Path(__file__).parents[3] / "docs" / "result.schema.json"


def test_the_schema_in_docs_is_that_of_the_models() -> None:
    assert KEPT.read_text() == make_schema(), (
        "make it anew: .venv/bin/python -m cli.results.reference schema > docs/result.schema.json"
    )


def test_it_tells_what_each_command_keeps() -> None:
    schema = json.loads(make_schema())
    assert {"command", "runs", "baseline", "options"} <= set(schema["properties"])
    assert {"RunResult", "GroupResult", "QueryResult", "Execution", "Offered", "LatencyMs"} <= set(
        schema["$defs"]
    )
    assert schema["properties"]["format"]["const"] == 2
