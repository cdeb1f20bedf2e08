"""The command line as such: help, and what is said if the most important thing is left out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from cli.main import COMMANDS, commands, main
from cli.plan.fields import Group, find_options
from cli.plan.requests import REQUESTS

CONFIG = "targets:\n  here: {module: blackhole}\n  there: {module: blackhole}\n"


class Said:
    """What a command printed, and its exit status."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def of(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self._capsys.readouterr()
        return end.value.code, out, err


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Said:
    """From a folder with a config file of two targets."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return Said(capsys)


def test_without_arguments_there_is_help(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = said.of(monkeypatch)
    assert (status, out) == (2, "")
    assert err.startswith("Usage: python run.py ")
    assert all(f"\n  {name} " in err for name in COMMANDS)
    assert err.endswith("\nconfig.yaml has the targets here, there\n")


@pytest.mark.parametrize("command", ["insert", "query"])
def test_without_a_target_those_of_the_file_are_listed(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    status, out, err = said.of(monkeypatch, command, "-w", "1")
    assert (status, out) == (2, "")
    assert err == (
        "error: which target? Give --target NAME; config.yaml has the targets here, there\n"
        f"See: python run.py {command} --help\n"
    )
    other = tmp_path / "other.yaml"
    other.write_text("targets: {elsewhere: {module: blackhole}}")
    assert (
        f"{other} has the targets elsewhere" in said.of(monkeypatch, command, "-c", str(other))[2]
    )
    assert (
        "there is no config file gone.yaml" in said.of(monkeypatch, command, "-c", "gone.yaml")[2]
    )


def test_the_database_to_install_is_asked_for_likewise(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, err = said.of(monkeypatch, "db", "install")
    assert err.startswith("error: which target? Give its name; config.yaml has the targets here, ")
    status, _, err = said.of(monkeypatch, "db")
    assert status == 2
    assert err.startswith("Usage: python run.py db ")


def test_another_missing_argument_is_named(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, err = said.of(monkeypatch, "compare")
    assert status == 2
    assert err.startswith("error: missing argument")


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["query", "--workers", "1,2"], "'-w' / '--workers': '1,2' is not a whole number\n"),
        (
            ["mixed", "--query-rate", "5/s"],
            "'--query-rate': '5/s' is not a number: write a number as in 50000, 50k, 1M or 1e6\n",
        ),
        (["insert", "--timeout", "ten"], "'--timeout': 'ten': write a time as in 30s, 5m or 1h\n"),
    ],
)
def test_what_is_no_number_is_told_in_plain_words(
    said: Said, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said_of_it: str
) -> None:
    status, _, err = said.of(monkeypatch, *arguments)
    assert status == 2
    assert err.startswith(f"error: invalid value for {said_of_it}See: ")


@pytest.mark.parametrize("group", [(), ("db",), ("results",)])
def test_no_line_of_a_list_of_commands_is_cut_off(group: tuple[str, ...]) -> None:
    context = click.Context(commands, info_name="python run.py", terminal_width=80)
    command: click.Command = commands
    for name in group:
        assert isinstance(command, click.Group)
        subcommand = command.get_command(context, name)
        assert subcommand is not None
        command, context = subcommand, click.Context(subcommand, parent=context, info_name=name)
    listed = command.get_help(context).partition("Commands:\n")[2].splitlines()
    assert isinstance(command, click.Group)
    # One line for each, with a whole sentence.
    assert [line.split()[0] for line in listed] == command.list_commands(context)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
    assert max(map(len, listed)) <= 80


@pytest.mark.parametrize("command", ["clients", "doctor"])
def test_a_limit_is_said_to_be_of_others(
    command: str, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = said.of(monkeypatch, command, "-t", "here", "--limit", "p99=1s")
    assert status == 2
    assert "no such option here: --limit; `insert`, `query`, `mixed` and `capacity` keep to" in err
    assert "--live" not in err


def test_debug_leaves_the_status_as_it_is(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = said.of(monkeypatch, "insert", "-t", "nowhere")
    status, out, err = said.of(monkeypatch, "insert", "-t", "nowhere", "--debug")
    assert (status, out) == (2, "") == plain[:2]
    assert "Traceback" in err and err.endswith(plain[2])


def test_a_data_folder_that_cannot_be_written_starts_nothing(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "config.yaml").write_text(
        "targets: {e: {module: postgres, executor: local, start_server: postgresql, data_dir: file/pg}}"
    )
    status, _, err = said.of(monkeypatch, "insert", "-t", "e", "-w", "1", "-r", "1")
    assert status == 2
    assert "/file/pg for the embedded PostgreSQL: Not a directory; set EMBEDDED_DATA_DIR" in err
    assert not list((tmp_path / "results").iterdir())


@pytest.mark.parametrize("command", list(REQUESTS))
def test_the_help_of_a_command_shows_each_option_in_its_group(command: str) -> None:
    own = commands.get_command(click.Context(commands), command)
    assert own is not None
    parts = re.split(r"^(\w.*):\n", own.get_help(click.Context(own)), flags=re.MULTILINE)
    groups = dict(zip(parts[1::2], parts[2::2], strict=True))
    for _, option in find_options(REQUESTS[command]).values():
        assert re.search(rf"{option.flags[-1].partition('/')[0]}\b", groups[option.group])
    assert list(groups) == [group for group in Group if group in groups]
    assert "--help" in groups[Group.OUTPUT]
