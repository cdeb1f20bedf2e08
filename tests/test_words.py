"""Pages and messages avoid the words of docs/vocabulary.yaml."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from .test_docs import DOCUMENTS, ROOT

VOCABULARY: dict[str, str] = yaml.safe_load((ROOT / "docs" / "vocabulary.yaml").read_text())
_AVOIDED = re.compile("|".join(f"(?:{pattern})" for pattern in VOCABULARY), re.IGNORECASE)


def list_messages(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what a program may print: its literals of several words, without docstrings."""
    tree = ast.parse(file.read_text())
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def test_messages_avoid_the_words_of_the_vocabulary() -> None:
    matches = [
        f"{file.relative_to(ROOT)}:{line}: {match[0]!r}"
        for package in ("cli", "simulator")
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in list_messages(file)
        if (match := _AVOIDED.search(text))
    ]
    assert matches == []


def test_pages_avoid_the_words_of_the_vocabulary() -> None:
    matches = [
        f"{document.relative_to(ROOT)}: {match[0]!r}"
        for document in DOCUMENTS
        if document.name != "old-results.md"
        for match in _AVOIDED.finditer(re.sub(r"\s+", " ", document.read_text()))
    ]
    assert matches == []


def test_a_word_to_avoid_is_found() -> None:
    assert _AVOIDED.search("It broke in mid-run.")
    assert not _AVOIDED.search("It broke during the run.")
