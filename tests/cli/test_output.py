"""Sentences on a terminal: broken between words."""

from __future__ import annotations

import click
import pytest

from cli.system.output import STRIKE, STRIKE_END, note, print_text, warn_once, wrap_lines

TEXT = "short: runs of 2.0 s measure much of\n\nfile: /a/folder/with-a-name/that-is-long"


def test_lines_are_broken_between_words() -> None:
    assert wrap_lines(TEXT, 20).splitlines() == [
        "short: runs of 2.0 s", "  measure much of", "", "file:", "  /a/folder/with-a-name/that-is-long",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [None, 200])
def test_lines_that_have_room_stay(width: int | None) -> None:
    assert wrap_lines(TEXT, width) == TEXT


def test_what_others_say_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("error: \x1b[2Jdatabase says \u202eolleh\x9b1m")
    print_text(f"{STRIKE}1,234{STRIKE_END} \x07")
    printed = capsys.readouterr()
    assert printed.err == "error: \\x1b[2Jdatabase says \\u202eolleh\\x9b1m\n"
    assert printed.out == f"{STRIKE}1,234{STRIKE_END} \\x07\n"


def test_a_warning_is_noted_once_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def insert() -> None:
        warn_once("a short password")

    @click.command()
    @click.pass_context
    def campaign(context: click.Context) -> None:
        warn_once("a short password")
        for _ in range(3):
            insert.main([], standalone_mode=False, parent=context)

    for _ in range(2):
        campaign.main([], standalone_mode=False)
    assert capsys.readouterr().err == "warning: a short password\n" * 2
