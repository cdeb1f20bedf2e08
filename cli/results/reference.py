"""What of docs/ is made from the code: the JSON Schema of `result.json`, and the page of all figures.

python -m cli.results.reference schema > docs/result.schema.json
python -m cli.results.reference figures > docs/figures.md
"""

from __future__ import annotations

import json
import sys

from .asking import QUERY_TABLE
from .figures import BOTH, FIGURES, TABLES, WRITERS
from .model import FORMAT, Result


def make_schema() -> str:
    """The schema as it is kept in docs/."""
    schema = Result.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"result.json, format {FORMAT}"
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def make_figures_page() -> str:
    """docs/figures.md."""
    lines = [
        "# Figures",
        "",
        (
            "All figures, as `cli/results/figures.py` declares them; made by"
            " `python -m cli.results.reference figures > docs/figures.md`. *Key*: the column of `results"
            " export`; in brackets what only tables show. What they mean: [method.md](method.md)."
        ),
        "",
        "| key | heading | unit | what it is | better | of | also |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in FIGURES.values():
        who = "both" if one.roles == BOTH else "writers" if one.roles == WRITERS else "readers"
        also = [f"`--fail-if {one.limit}`"] if one.limit else []
        also += ["`compare`"] if one.compared else []
        also += [f"*{title}*" for title, keys in TABLES.items() if one.key in keys]
        key = f"`{one.key}`" if one.exported else f"(`{one.key}`)"
        cells = [key, one.heading, one.unit, one.about, one.better or "", who, ", ".join(also)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Of each query, over all runs",
        "",
        "The columns of the table of queries; times are in ms.",
        "",
        "| heading | what it is | in a run |",
        "| --- | --- | --- |",
    ]
    for column in QUERY_TABLE:
        of_run = f"`{column.key}`" if column.key else ""
        lines.append(f"| {column.heading} | {column.about} | {of_run} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = {"schema": make_schema, "figures": make_figures_page}
    print(made[sys.argv[1]](), end="")  # noqa: T201 - the output of this program
