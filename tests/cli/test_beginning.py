"""A signal that comes while Python still reads the code."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """What is begun in a shell's background ignores SIGINT, what a supervisor begins perhaps SIGTERM, and so
    does all that they begin."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def begin(folder: Path, *start: str) -> tuple[int, str]:
    """Exit status and last words of a command that finds modules in `folder` first."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    done = subprocess.run(
        [sys.executable, *start, "targets"],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("start", [(str(ROOT / "run.py"),), ("-m", "cli")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_among_the_imports_ends_it_silently(
    tmp_path: Path, number: signal.Signals, start: tuple[str, ...]
) -> None:
    """As in a class's `__set_name__`, which turns an exception into another one."""
    (tmp_path / "click.py").write_text(
        f"import signal\ntry:\n    signal.raise_signal({int(number)})\n"
        "except BaseException as error:\n    raise RuntimeError('another') from error\n"
    )
    assert begin(tmp_path, *start) == (128 + number, "")


def test_ctrl_c_before_signals_are_handled_is_silent_too(tmp_path: Path) -> None:
    (tmp_path / "signal.py").write_text("raise KeyboardInterrupt\n")
    assert begin(tmp_path, "-m", "cli") == (130, "")


def test_ctrl_c_at_the_first_line_is_silent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "cli.__main__":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "cli.__main__", raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "run.py"))
    assert end.value.code == 130
