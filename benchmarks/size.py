"""How large the house is: lines, files, classes, functions, and private functions that one place calls.

    python -m benchmarks.size [FOLDER…]

By default of `cli/` and `simulator/`, with the goals for both. A private function is one of a module, not
of a class, whose name begins with an underscore; its callers are the places in its module that name it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Sequence

from .support import ROOT

GOALS = {
    "lines": 74_000,
    "files": 300,
    "classes": 700,
    "functions": 4_700,
    "private with one caller": 350,
}


def main(folders: Sequence[str]) -> int:
    """Count, and say whether the goals are met."""
    counts: Counter[str] = Counter()
    for folder in folders or ("cli", "simulator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            counts += count_file(path.read_text(encoding="utf-8"))
    over = False
    for name, goal in GOALS.items():
        of_goal = "" if folders else f" of {goal:,}"
        over |= not folders and counts[name] > goal
        print(f"{counts[name]:>7,}{of_goal} {name}")
    return int(over)


def count_file(source: str) -> Counter[str]:
    """What there is in one file."""
    tree = ast.parse(source)
    counts = Counter({"files": 1, "lines": source.count("\n")})
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        counts["classes"] += isinstance(node, ast.ClassDef)
        counts["functions"] += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Name):
            names[node.id] += 1
    counts["private with one caller"] = sum(
        isinstance(node, ast.FunctionDef) and node.name.startswith("_") and names[node.name] == 1
        for node in tree.body
    )
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
