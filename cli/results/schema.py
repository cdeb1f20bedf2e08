"""The JSON Schema of `result.json`, made from the models.

python -m cli.results.schema > docs/result.schema.json
"""

from __future__ import annotations

import json

from .model import FORMAT, Result


def make_schema() -> str:
    """The schema as it is kept in docs/."""
    schema = Result.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"result.json, format {FORMAT}"
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(make_schema(), end="")  # noqa: T201 - the output of this program
