"""What is checked before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.session import Request, open_session


def request_for(place: Path, keys: str) -> Request:
    """For a target of module postgres with these keys."""
    file = place / "config.yaml"
    file.write_text(f"targets:\n  x:\n    module: postgres\n    executor: local\n{keys}")
    return Request("x", file, (), None, 0, place, None)


@pytest.mark.parametrize(
    "keys",
    [
        "    connection_string: host=db password=e\n",
        "    connection_string: host=db\n    password: e\n",
    ],
)
def test_a_short_secret_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str
) -> None:
    """It can't be told from any other word in a message, so it isn't starred out everywhere."""
    open_session(request_for(tmp_path, keys))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: target x has a password or token of fewer than 8 ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("password", ["password=geheim-4711", ""])
def test_a_long_one_or_none_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    open_session(request_for(tmp_path, f"    connection_string: host=db {password}\n"))
    assert capsys.readouterr().err == ""
