"""Every command, where standard output has few characters or no room: no traceback, and what can be said
is said."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import pytest

from cli.main import COMMANDS, commands, main
from cli.system.output import print_text

from ..helpers import begin_definition, configure_definition
from .made import inserts

ROOT = Path(__file__).parents[2]

CONFIG = (
    """\
targets:
  München: {module: blackhole, executor: local}
  温度: {module: blackhole, executor: local}
workloads:
"""
    + configure_definition(
        begin_definition("sizes", "size", "Größen × 温度", devices=10, interval="1s")
    )
    + "      - {name: heat, type: float32, signal: {kind: wander, low: 20, high: 80, period: 1h}}\n"
)
CAMPAIGN = """\
title: Größe × 温度
targets: {München: , 温度: }
options: {workers: 1, duration: 1s}
steps: [{insert: }]
"""
_HELP = [[name, "--help"] for name in COMMANDS if name not in ("results", "db")]
COMMAND_LINES: Sequence[Sequence[str]] = [
    ["--help"], ["--version"], *_HELP, ["db", "install", "--help"],
    *(["results", name, "--help"] for name in ("list", "show", "export", "check")),
    ["results", "list"], ["results", "show", "latest"], ["results", "export"],
    ["results", "check", "results/one"], ["compare", "one", "two"], ["plot", "one", "--output", "one.svg"],
    ["report", "one", "--output", "report.html"],
    ["publish", "results", "--output", "site"], ["campaign", "campaign.yaml", "--dry-run"],
    ["campaign", "--example", "steps"], ["targets"], ["targets", "München"], ["targets", "--example"],
    ["workloads"], ["workloads", "sizes"], ["workloads", "machines"],
    ["ceiling", "--events", "100", "--batch", "10"], ["doctor", "--executor", "local"],
    ["insert", "-t", "Köln"], ["insert", "-t", "München", "--label", "\udcfc"],
]  # fmt: skip
"""All but those that run something, which `tests/e2e/test_outputs.py` has."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config file and two results, whose names and texts are not in ASCII."""
    for name in ("one", "two"):
        result = inserts({1: [1_000.0, 1_100.0]}, target="München")
        result.label = f"温度 × Größe {name}"
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(result.model_dump_json(), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], out: io.TextIOWrapper
) -> tuple[object, str]:
    """Exit status and standard error of a command that prints to `out`."""
    err = io.TextIOWrapper(io.BytesIO(), out.encoding, write_through=True)
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(err.buffer, io.BytesIO)
    return end.value.code, err.buffer.getvalue().decode(out.encoding)


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_every_command_prints_in_any_encoding(
    place: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    for arguments in COMMAND_LINES:
        out = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
        status, err = run(monkeypatch, arguments, out)
        assert "Traceback" not in err and "defect" not in err, (arguments, err)
        assert status in ({2} if arguments[0] == "insert" and "-t" in arguments else {0, 1}), (
            arguments,
            err,
        )
        assert isinstance(out.buffer, io.BytesIO)
        printed = out.buffer.getvalue().decode(encoding)
        assert (printed or err).strip(), arguments


def test_every_command_says_that_there_is_no_room(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in COMMAND_LINES:
        out = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closing fails, too
        status, err = run(monkeypatch, arguments, out)
        with suppress(OSError):
            out.close()
        assert "Traceback" not in err and "defect" not in err, (arguments, err)
        assert len([line for line in err.splitlines() if line.startswith("error: ")]) <= 1, err
        if status not in (0, 2):
            assert "make room" in err, (arguments, err)


def test_what_stands_for_a_character_means_the_same(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    def shown(encoding: str, text: str) -> str:
        out = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
        run(monkeypatch, ["--version"], out)
        print_text(text)
        assert isinstance(out.buffer, io.BytesIO)
        return out.buffer.getvalue().decode(encoding).splitlines()[-1]

    text = "━─·… 1.5 × ≤ 3 µs, Größe 温度 –2 … ✓"
    assert shown("ascii", text) == r"=-|. 1.5 x <= 3 us, Gr\xf6\xdfe \u6e29\u5ea6 -2 . yes"
    assert shown("iso8859-1", text) == r"=-·. 1.5 × <= 3 µs, Größe \u6e29\u5ea6 -2 . yes"
    assert shown("utf-8", text) == text


def test_help_is_ascii() -> None:
    """Where output is ASCII, click would print it in UTF-8 instead."""

    def check(command: click.Command, context: click.Context) -> None:
        assert command.get_help(context).isascii(), context.command_path
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                check(below, click.Context(below, parent=context, info_name=name))

    check(commands, click.Context(commands, info_name="run.py"))


def opens_without_encoding(call: ast.Call) -> bool:
    """Whether what a call reads or writes is text in an encoding that depends on where it runs."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    keywords = {keyword.arg for keyword in call.keywords}
    modes = [value.value for value in call.args if isinstance(value, ast.Constant)]
    match name:
        case "read_text":  # else a method of our own
            return not call.args and "encoding" not in keywords
        case "write_text":
            return isinstance(call.func, ast.Attribute) and "encoding" not in keywords
        case "open" | "fdopen" | "NamedTemporaryFile" | "TemporaryFile":
            text = any(re.fullmatch("[rwax+t]+", str(mode)) for mode in modes)
            return text and "encoding" not in keywords
        case "run" | "Popen" | "check_output":
            return bool(keywords & {"text", "universal_newlines"}) and "encoding" not in keywords
    return False


def test_text_files_name_their_encoding() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in ("cli", "simulator")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Call) and opens_without_encoding(node)
    ]
    assert not found
