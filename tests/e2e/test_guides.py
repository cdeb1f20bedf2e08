"""Every command of the tutorial and the how-tos runs as it is printed, for a shorter time.

A block behind `<!-- file: NAME -->` is a file that its page uses. One behind `<!-- needs: … -->` needs what
tests on one machine don't have; that its commands and options exist is tested by tests/test_docs.py. What a
page shows behind `<!-- output -->` has the tables that the command before it prints, with other figures.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .test_runs import WAITED
from .tool import ROOT, Done, Tool

DOCS = ROOT / "docs"
GUIDES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- (\w+)(?:: ([^>]*?))? -->\n+)?^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL
)

SHORT = {
    "--workers": "2",
    "--duration": "2s",
    "--warm-up": "200ms",
    "--num-inserts": "20k",
    "--runs": "1",
    "--steps": "2",
    "--prefill": "20k",
    "--fill": "20k",
    "--prefill-every": "120h",
    "--query-rate": "200",
}
"""Values instead of those that are printed: what is tried is that a command works, not what it measures."""
MORE = {
    "capacity": {
        "--batch": "10",
        "--step-duration": "2s",
        "--max-steps": "2",
        "--precision": "50%",
    },
    "tune": {"--run-duration": "1s", "--runs": "1"},
}
"""Options that make a search short."""
SHORT_FILE = {
    "duration": "5s",
    "warm-up": "500ms",
    "max-steps": "2",
    "every": "8h",
}
"""The same of keys in files; and a campaign has two repetitions."""
MAKES = "examples/recorded/make.py"
INSERT = "insert --target embedded --workers 1 --runs 1 --duration 2s --batch 100"
PREPARED = {
    "read-results.md": [
        f"{INSERT} --label 'batch 100' --json baseline.json",
        f"{INSERT} --label 'batch 1000'",
    ],
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
        """The words of each command of the tool, and of what makes data."""
        lines = re.sub(r" \\\n *", " ", self.text).splitlines()
        words = [shlex.split(line, comments=True) for line in lines]
        return [line for line in words if line[:1] == ["iotbench"] or line[1:2] == [MAKES]]


def read_blocks(page: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    blocks = []
    for mark, about, indent, language, text in _BLOCK.findall(page.read_text()):
        lines = [line.removeprefix(indent) for line in text.splitlines(keepends=True)]
        blocks.append(Block(mark, about, language, "".join(lines)))
    return blocks


def shorten(words: list[str]) -> list[str]:
    """The same command for a shorter time, without a browser."""
    short = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "--disturb":
            short.append(re.sub(r"\b\d+s\b", "500ms", word))
        elif before == "--rate":
            short.append(re.sub(r"\d+m:", "1s:", word))
        elif before == "--over" and "--over" in short[:-1]:
            short.append(word.partition(",")[0])
        elif before == "--over":
            short.append(",".join(word.split(",")[:2]))
        elif word != "--open":
            short.append(SHORT.get(before, word))
    for option, value in MORE.get(words[0], {}).items():
        if option in short:
            short[short.index(option) + 1] = value
        else:
            short += [option, value]
    return short


def shorten_file(text: str) -> str:
    """A campaign, or a workload, that takes less time."""
    for key, value in SHORT_FILE.items():
        text = re.sub(rf"(\b{key}: )\d+\w+", rf"\g<1>{value}", text)
    return text.replace("\nrequirements:", "\nrepeats: 2\nrequirements:")


def is_right(words: list[str], done: Done) -> bool:
    """Whether a command did what it is for: a verdict may be that a limit is missed, or a figure worse; and a
    busy machine may keep a worker waiting."""
    if words[0] == "compare":
        return done.status in (0, 1) and "error" not in done.err
    return done.status in (0, 3) or (done.status == 1 and bool(WAITED.search(done.err)))


def run(tool: Tool, words: list[str]) -> Done:
    """Run a command of a page; what is behind `>` becomes a file."""
    words, file = _split(words, ">")
    done = tool.run_here(*shorten(words))
    assert is_right(words, done), (words, done)
    for name in file:
        (tool.place / name).write_text(shorten_file(done.out))
    return done


def _split(words: list[str], mark: str) -> tuple[list[str], list[str]]:
    place = words.index(mark) if mark in words else len(words)
    return words[:place], words[place + 1 :]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_works_as_printed(tool: Tool, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tool.place / "recordings"))
    tool.may_lack_results = True
    tool.outputs += [tool.place / "campaigns" / "decide" / "results"]
    for line in PREPARED.get(page.name, []):
        tool.run_here(*shlex.split(line)).ok()
    done = None
    for block in read_blocks(page):
        if block.mark == "file":
            (tool.place / block.about).write_text(shorten_file(block.text))
        elif block.mark == "output":
            assert done is not None
            shown, printed = list_first_cells(block.text), list_first_cells(done.out)
            begin = printed.index(shown[0])
            assert printed[begin : begin + len(shown)] == shown
        elif block.language == "bash" and block.mark != "needs":
            for program, *words in block.list_commands():
                if program == "iotbench":
                    done = run(tool, words)
                else:
                    make = [sys.executable, str(ROOT / words[0]), *words[1:]]
                    subprocess.run(make, check=True, cwd=tool.place)


def list_first_cells(printed: str) -> list[str]:
    """The first cells of the rows of tables: figures differ."""
    rows = [re.split(r" {2,}", line.strip()) for line in printed.splitlines()]
    return [row[0] for row in rows if len(row) > 1]
