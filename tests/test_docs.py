"""What the documents say is there: links, commands, options, checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from cli.main import commands
from cli.results.decision import VerdictMatrix
from cli.results.store import read_result
from cli.show.notes import summarize_notes
from cli.show.requirements import show_matrix
from comparison.table import BEGIN, END
from simulator.workloads.yaml_source import parse_definition

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("comparison/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("dbinstall/**/*.md"),
    ]
)
IDS = [str(document.relative_to(ROOT)) for document in DOCUMENTS]

_TOOL = re.compile(r"^(?:python run\.py|iotbench)(?: |$)")


def _anchors(document: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _code_lines(document: Path) -> Iterator[str]:
    """Lines of shell code, continued ones joined, without comments."""
    for block in re.findall(r"```bash\n(.*?)```", document.read_text(), re.DOTALL):
        for line in re.sub(r" \\\n *", " ", block).splitlines():
            yield re.sub(r"\s+#.*", "", line.strip())


def _tool_commands(document: Path) -> Iterator[list[str]]:
    """The arguments of each command of the tool, in blocks of code and within the text."""
    inline = re.findall(
        r"`((?:python run\.py|iotbench) [^`]*)`", document.read_text().replace("\n", " ")
    )
    for line in [*_code_lines(document), *inline]:
        if _TOOL.match(line):
            words = shlex.split(_TOOL.sub("", line))
            yield words[: words.index(">")] if ">" in words else words


def test_the_readme_is_a_front_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160


MADE = ("figures.md", "keys.md", "licences.md", "modules.md", "options.md")
"""Pages of docs/reference/ that are made from the code."""


def test_what_is_written_by_hand_can_be_read() -> None:
    """20,000 words at most, without blocks of code, the changelog, and what was measured."""
    words = 0
    for document in DOCUMENTS:
        apart = document.name in (*MADE, "CHANGELOG.md", "old-results.md")
        if not apart and document.parent.name != "measurements":
            text = re.sub(
                r"^ *```.*?^ *```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL
            )
            text = re.sub(f"{BEGIN}.*?{END}", "", text, flags=re.DOTALL)
            text = re.sub(r"\]\([^)]*\)", "]", text)
            words += len(re.findall(r"[A-Za-z][A-Za-z'’-]*", text))
    assert 10_000 < words <= 20_000


@pytest.mark.parametrize("page", ["glossary.md", "twelve-files.md"])
def test_what_pages_point_at_in_the_code_is_there(page: str) -> None:
    """`file::name`: the file defines the name; `file`: it is there."""
    text = (ROOT / "docs" / page).read_text()
    places = re.findall(r"`((?:cli|simulator)/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(places) >= 12
    for file, name in places:
        code = (ROOT / file).read_text()
        assert not name or re.search(rf"^(class|def) {name}\b", code, re.MULTILINE), (file, name)


def test_the_glossary_has_each_term_once() -> None:
    terms = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [term for term in terms if term not in ("term", "---")]
    assert 60 <= len(terms) == len(set(terms)) <= 80


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_what_belongs_to_a_numbered_line_is_indented_by_four(document: Path) -> None:
    """With three, mkdocs ends the list at a block of code, and the next line is number one again."""
    assert re.findall(r"^ {1,3}```.*", document.read_text(), re.MULTILINE) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        if anchor:
            assert anchor in _anchors(file), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_every_command_printed_is_one_that_the_tool_takes(document: Path) -> None:
    for arguments in _tool_commands(document):
        context = commands.make_context("run.py", list(arguments))
        while isinstance(context.command, click.Group) and context._protected_args:
            rest = [*context._protected_args, *context.args]
            name, command, rest = context.command.resolve_command(context, rest)
            assert command is not None
            try:
                context = command.make_context(name, rest, parent=context)
            except click.exceptions.Exit:
                break  # --help


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_every_make_target_named_is_there(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"(?:^|`|&& )make ([a-z][a-z0-9-]*)", document.read_text(), re.MULTILINE)
    for name in named:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


@pytest.mark.parametrize(
    ("document", "result"),
    [
        ("README.md", "demo-insert"),
        ("README.md", "demo-query"),
        ("docs/how-to/inserts.md", "example-steps"),
        ("docs/how-to/inserts.md", "example-closed"),
        ("docs/how-to/inserts.md", "example-open"),
    ],
)
def test_tables_printed_are_those_of_the_stored_results(document: str, result: str) -> None:
    """And so as the tool prints them now."""
    stored = str(ROOT / "img" / "results" / f"{result}.json")
    shown = CliRunner().invoke(commands, ["results", "show", stored], catch_exceptions=False).stdout
    titles = ("Inserts per second", "Durations, ms")
    table = next(part for title in titles for part in shown.split(f"\n{title}\n")[1:])
    assert table.split("\n\n")[0].strip("\n") in (ROOT / document).read_text()


def test_the_verdict_of_the_front_page_is_that_of_the_stored_one() -> None:
    stored = (ROOT / "img" / "demo-verdict.json").read_text()
    verdict = VerdictMatrix.model_validate_json(stored)
    assert show_matrix(verdict) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("result", ["demo-insert", "demo-query"])
def test_the_lines_below_the_readmes_tables_are_those_of_the_stored_results(result: str) -> None:
    readme = (ROOT / "README.md").read_text()
    for line in summarize_notes(read_result(ROOT / "img" / "results" / f"{result}.json"), False):
        assert f"\n{line}\n" in readme


@pytest.mark.parametrize(
    ("document", "result"),
    [
        ("how-to/faults.md", "example-disturbed"),
        ("measurements/failovers.md", "example-rolling"),
    ],
)
def test_what_is_said_of_disturbances_is_that_of_the_stored_results(
    document: str, result: str
) -> None:
    stored = str(ROOT / "img" / "results" / f"{result}.json")
    shown = CliRunner().invoke(commands, ["results", "show", stored], catch_exceptions=False).stdout
    (sentence,) = (line for line in shown.splitlines() if line.startswith("After "))
    assert f"> {sentence}\n" in (ROOT / "docs" / document).read_text()


def test_the_definition_in_the_documents_is_one() -> None:
    text = (ROOT / "docs" / "how-to" / "own-workload.md").read_text()
    own = text.split("```yaml\nname: boilers", 1)[1].split("```")[0]
    definition = parse_definition(f"name: boilers{own}", "own-workload.md")
    assert [query.name for query in definition.queries] == ["hottest-per-house"]


def test_pre_commit_runs_what_make_lint_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^lint: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    lint_commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = configuration["repos"]
    assert local["repo"] == "local"
    assert [hook["entry"] for hook in local["hooks"]] == lint_commands
