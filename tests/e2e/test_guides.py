"""Every command of the tutorial and the how-tos runs as it is printed, for a shorter time.

A block behind `<!-- file: NAME -->` is a file that its page uses. One behind `<!-- needs: … -->` needs what tests
on one machine don't have; that its commands and options exist is tested by tests/test_docs.py. What a page shows
behind `<!-- output -->` has the tables that the command before it prints, with other figures.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from .tool import ROOT, Done, Tool

DOCS = ROOT / "docs"
GUIDES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]

_BLOCK = re.compile(r"(?:<!-- (\w+)(?:: ([^>]*?))? -->\n+)?^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)

SHORT = {
    "--duration": "1s",
    "--warm-up": "200ms",
    "--step-duration": "1s",
    "--num-inserts": "20k",
    "--runs": "1",
    "--steps": "2",
    "--prefill": "20k",
    "--fill": "20k",
    "--prefill-span": "1d",
    "--prefill-every": "4h",
}
"""Values instead of those that are printed: what is tried is that a command works, not what it measures."""
MORE = {"capacity": ["--max-steps", "2", "--precision", "50%"], "tune": ["--duration", "1s", "--max-trials", "3"]}
"""Options that make a search short."""
PREPARED = {
    "read-results.md": [
        "insert --target embedded --workers 1 --runs 1 --duration 1s --batch 100 --label 'batch 100' --json baseline.json",
        "insert --target embedded --workers 1 --runs 1 --duration 1s --batch 1000 --label 'batch 1000'",
    ],
    "publish.md": [],
}
"""What is there already where a page begins."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    mark: str
    about: str
    language: str
    text: str

    def list_commands(self) -> list[list[str]]:
        """The arguments of each command of the tool."""
        lines = re.sub(r" \\\n *", " ", self.text).splitlines()
        words = [shlex.split(line, comments=True) for line in lines]
        return [line[2:] for line in words if line[:2] == ["python", "run.py"]]


def read_blocks(page: Path) -> list[Block]:
    """All of a page, in their order."""
    found = []
    for mark, about, indent, language, text in _BLOCK.findall(page.read_text()):
        lines = [line.removeprefix(indent) for line in text.splitlines(keepends=True)]
        found.append(Block(mark, about, language, "".join(lines)))
    return found


def shorten(words: list[str]) -> list[str]:
    """The same command for a shorter time, with a page that nobody opens."""
    short = [
        SHORT.get(before, word)
        for before, word in zip(["", *words], words, strict=False)
        if word != "--open"
    ]
    return [*short, *(word for word in MORE.get(words[0], []) if word not in words)]


def run(tool: Tool, words: list[str]) -> Done:
    file = None
    if ">" in words:
        words, file = words[: words.index(">")], words[words.index(">") + 1]
    done = tool.run_here(*shorten(words))
    # A verdict that isn't met is what it may well be here.
    assert done.status in (0, 3), (words, done)
    if file is not None:
        (tool.place / file).write_text(done.out)
    return done


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_works_as_printed(tool: Tool, page: Path) -> None:
    tool.may_lack_results = True
    tool.outputs += [tool.place / "campaigns"]
    for line in PREPARED.get(page.name, []):
        tool.run_here(*shlex.split(line)).ok()
    done = None
    for block in read_blocks(page):
        if block.mark == "file":
            (tool.place / block.about).write_text(block.text)
        elif block.mark == "output":
            assert done is not None
            assert find_shape(block.text) == find_shape(done.out)
        elif block.language == "bash" and block.mark != "needs":
            for words in block.list_commands():
                done = run(tool, words)


def find_shape(printed: str) -> list[list[str]]:
    """The words of what is printed without figures: headings and names of rows."""
    lines = [re.findall(r"[A-Za-z][A-Za-z-]+", line) for line in printed.splitlines()]
    return [words for words in lines if words]
