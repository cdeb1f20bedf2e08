"""Every picture of the documents is made by `make pictures` from results that are kept in the repo, or by the
benchmark whose page it is on."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.results import plot
from cli.results.store import read_result
from comparison import growth
from comparison.picture import PICTURE

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = ROOT / "docs" / "measurements"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
FILES = sorted((ROOT / "img" / "results").glob("*.json"))
STORED = [file for file in FILES if not file.stem.endswith("-verdict")]


def pictures_in(document: Path) -> set[Path]:
    """The pictures that a document shows; architecture.svg is drawn by hand."""
    paths = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", document.read_text())
    return {(document.parent / path).resolve() for path in paths if path != "architecture.svg"}


def commands_of_pictures() -> dict[str, list[str]]:
    """Picture -> arguments of the plot command that `make pictures` draws it by."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    example = re.search(r"^EXAMPLE := (.*)$", makefile, re.MULTILINE)
    assert example is not None
    lines = re.findall(r"^\t\$\(PLOT\) (.*)$", makefile, re.MULTILINE)
    commands = [shlex.split(line.replace("$(EXAMPLE)", example[1])) for line in lines]
    return {words[words.index("--output") + 1]: words for words in commands}


def list_labels(svg: str) -> list[str | None]:
    """What can be read in a picture."""
    return [element.get("aria-label") for element in ET.fromstring(svg).iter()]


def test_every_picture_shown_is_made_and_the_other_way_round() -> None:
    shown = {
        path
        for document in DOCUMENTS
        for path in pictures_in(document)
        if path.parent != MEASUREMENTS
    }
    shown -= {PICTURE, growth.PICTURE}  # by `make comparison-table`
    assert {str(path.relative_to(ROOT)) for path in shown} == set(commands_of_pictures())
    for path in shown:
        assert path.is_file(), path


def test_texts_of_pictures_follow_the_theme() -> None:
    """A dark page has colours of its own for those of charts, and none for the renderer's default."""
    for picture in (ROOT / "img").glob("*.svg"):
        assert 'fill="black"' not in picture.read_text(), picture


def test_a_page_of_measurements_prints_the_command_that_draws_its_picture() -> None:
    shown = {
        path: page
        for page in MEASUREMENTS.glob("*.md")
        for path in pictures_in(page)
        if path.parent == MEASUREMENTS
    }
    assert set(shown) == set(MEASUREMENTS.glob("*.svg"))
    for path, page in shown.items():
        assert re.search(
            rf"^python -m benchmarks\.\w+ --plot {path.name}$", page.read_text(), re.MULTILINE
        )


@pytest.mark.parametrize("picture", sorted(commands_of_pictures()))
def test_the_pictures_are_up_to_date(
    picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be read in them is what the stored results give. (Not the same bytes: how wide a text is
    depends on the fonts that are there.)"""
    monkeypatch.chdir(ROOT)
    words = commands_of_pictures()[picture]
    words[words.index("--output") + 1] = str(tmp_path / "now.svg")
    done = CliRunner().invoke(plot, words, catch_exceptions=False)
    assert done.exit_code == 0
    if picture.endswith(".svg"):
        now, shown = (
            list_labels(file.read_text()) for file in (tmp_path / "now.svg", ROOT / picture)
        )
        assert now == shown, f"{picture} is not of the stored results: make pictures"


# What the reference's picture shows, at 0 to 450 million events in steps of 50 million.
REFERENCE = {
    "PostgreSQL": [182_000] * 10,
    "CockroachDB": [32_000] * 8 + [30_000, 32_000],
    "YugabyteDB": [8_000] * 10,
}


def test_the_references_fill_levels() -> None:
    results = {
        result.target: result
        for file in STORED
        if file.name.startswith("reference-fill-level")
        for result in [read_result(file)]
    }
    levels = [step * 50_000_000 for step in range(10)]
    for target, result in results.items():
        assert [entry.fill_level for entry in result.insert_summary] == levels
        assert [group_run.group.rate_per_s for group_run in result.writers] == [
            entry.avg for entry in result.insert_summary
        ]
        assert "read off a picture" in (result.source or ""), target
    rates = {name: [e.avg for e in result.insert_summary] for name, result in results.items()}
    arango = rates.pop("ArangoDB")
    assert rates == REFERENCE
    assert (arango[0], arango[-1]) == (93_500, 88_000)
    assert arango == sorted(arango, reverse=True)


@pytest.mark.parametrize("file", STORED, ids=lambda file: file.stem)
def test_what_is_kept_can_be_read_and_says_no_secret(file: Path) -> None:
    assert read_result(file).runs
    options = json.loads(file.read_text())["options"].get("module", {})
    assert not {"password", "token"} & set(options)
