"""What is up while runs are made, and what a result says about the tool that measured it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cli.run.experiments.context import open_context, tool_environment
from cli.run.live import live_page
from cli.system.processes import Interrupts

from .running import open_blackhole


def test_a_change_since_the_commit_is_said_but_of_what_was_measured(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        named = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        done = subprocess.run(
            ["git", "-C", tmp_path, *named, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert tool_environment(tmp_path)["commit"] is None
    code, results = tmp_path / "run.py", tmp_path / "comparison" / "results" / "times.json"
    results.parent.mkdir(parents=True)
    code.write_text("1\n")
    results.write_text("{}\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "It begins")
    commit = git("rev-parse", "HEAD")
    assert tool_environment(tmp_path)["commit"] == commit
    results.write_text('{"one": 1}\n')
    assert tool_environment(tmp_path)["commit"] == commit
    code.write_text("2\n")
    assert tool_environment(tmp_path)["commit"] == f"{commit}-dirty"


@pytest.mark.parametrize("is_live", [False, True])
def test_a_page_is_served_if_it_was_asked_for(
    tmp_path: Path, is_live: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    session = open_blackhole(tmp_path)
    session.request = session.request.model_copy(update={"live": is_live})
    with open_context(session, "insert", Interrupts()):
        assert (live_page.get() is not None) is is_live
    assert capsys.readouterr().err.startswith("live: ") is is_live
