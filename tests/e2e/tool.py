"""The tool under test: a subprocess in a folder of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from unittest import mock

import psutil
import yaml

from cli.main import main

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "run.py"

# Unique, so that it can be looked for in everything that is printed, stored or run.
PASSWORD = "hush-" + uuid.uuid4().hex
PASSWORD_VARIABLE = "E2E_PASSWORD"

_MARKER = "E2E_MARKER"

Found = TypeVar("Found")


def eventually(
    condition: Callable[[], Found], event: str, within_s: float = 60.0, every_s: float = 0.02
) -> Found:
    """The first true value of `condition`; the test fails if there is none in time. That is much: on a busy
    machine a command alone takes 10 s to begin."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {event}"
        time.sleep(every_s)


@dataclass
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str
    seconds: float

    def error(self, status: int) -> str:
        """The error text, after checking its form and the exit status."""
        assert self.status == status, self
        return error_text(self.err)

    def ok(self) -> Done:
        """Itself, after checking that all went well."""
        assert self.status == 0, self
        assert "error" not in self.err.lower(), self
        return self


def error_text(err: str) -> str:
    """The one error in what was printed: one or two lines, the last ones, and no traceback."""
    assert "Traceback" not in err, err
    assert "defect" not in err, err
    lines = err.splitlines()
    begins = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    assert len(begins) == 1, err
    text = lines[begins[0] :]
    assert len(text) <= 2, err
    return "\n".join(text)


_OUTCOME = re.compile(r"run \d+ of \d+: [\d,.]+ inserts/s\n")


class Running:
    """A command under way. Its output goes to files, so it never waits for a reader."""

    def __init__(
        self, process: subprocess.Popen[bytes], out: Path | None, err: Path | None
    ) -> None:
        self.process = process
        self._out, self._err = out, err
        self._began = time.monotonic()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._err.read_text() if self._err else ""

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._out.read_text() if self._out else ""

    def await_err(self, text: str, within_s: float = 60.0) -> None:
        """Wait until `text` has been printed to standard error."""

        def printed() -> bool:
            if text in self.err:
                return True
            assert self.process.poll() is None, f"ended without {text!r}: {self.err}{self.out}"
            return False

        eventually(printed, f"{text!r} on standard error", within_s)

    def await_end_of(self, runs: int) -> None:
        """Wait until that many runs of inserts have ended; the next one has begun, or is about to."""

        def ended() -> bool:
            assert self.process.poll() is None, f"ended before: {self.err}{self.out}"
            return len(_OUTCOME.findall(self.err)) >= runs

        eventually(ended, f"the end of {runs} runs")

    def send(self, number: signal.Signals) -> None:
        """A signal to the command's process alone."""
        self.process.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """A signal to its process group, as a terminal sends it."""
        os.killpg(self.process.pid, number)

    def wait(self, within_s: float = 90.0) -> Done:
        """Wait for its end; the test fails if that doesn't come in time."""
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {within_s:g} s: {self.err}{self.out}") from None
        return Done(self.process.returncode, self.out, self.err, time.monotonic() - self._began)

    def launcher(self) -> psutil.Process:
        """The process that starts collector and workers."""

        def found() -> list[psutil.Process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.process.pid).children()
                return [child for child in children if child.cmdline()[-1:] == ["launcher"]]
            return []

        return eventually(found, "the launcher")[0]

    def part(self, name: str) -> psutil.Process:
        """`collector` or `worker-N`: the launcher's child that writes the log of that name."""
        launcher = self.launcher()

        def found() -> list[psutil.Process]:
            return [
                child
                for child in launcher.children()
                if standard_error(child).name == f"{name}.log"
            ]

        return eventually(found, f"process {name}")[0]


def standard_error(process: psutil.Process) -> Path:
    """Where a process writes its errors."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/fd/2").readlink()
    return Path()


_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _exit_status(program: Callable[[], object]) -> int:
    """The status with which a program that ends by `sys.exit` would end its process."""
    try:
        program()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except Exception:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    raise AssertionError("it went on")


def flatten(run: Mapping[str, Any], role: str = "write") -> dict[str, Any]:
    """A run of a result with what its writers, or readers, measured among its own fields."""
    (group,) = [group for group in run["groups"] if group["role"] == role]
    own = {name: value for name, value in run.items() if name != "groups"}
    return {**own, **group, "valid": not group["invalid_reasons"]}


class Tool:
    """The command line in a place of its own: working folder, results, temporary files, config."""

    def __init__(self, place: Path, embedded_home: Path) -> None:
        self.place = place
        self.results = place / "results"
        self.temporary = place / "tmp"
        self.config = place / "config.yaml"
        self.json = place / "copy.json"
        self.embedded_home = embedded_home
        self.may_lack_results = False
        """Set by tests that kill the command or make it fail before there is a result to keep."""
        self.outputs = [self.results]
        """Folders in which results may lie."""
        self._marker = uuid.uuid4().hex
        self._started = 0
        self._commands: list[Running] = []
        self.temporary.mkdir()
        shutil.copy(ROOT / "config.yaml", self.config)

    def add_target(self, name: str, **keys: object) -> None:
        """One more target in the config file."""
        document = yaml.safe_load(self.config.read_text())
        document["targets"][name] = {"executor": "local", **keys}
        self.config.write_text(yaml.safe_dump(document, sort_keys=False))

    def environment(self, **more: str) -> dict[str, str]:
        """A clean environment with a mark by which this test's processes are known."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.temporary),
            "EMBEDDED_DATA_DIR": str(self.embedded_home),
            PASSWORD_VARIABLE: PASSWORD,
            _MARKER: self._marker,
            **more,
        }

    def start(
        self,
        *arguments: object,
        out: int | IO[bytes] | None = None,
        err: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        program: Sequence[object] = (sys.executable, RUN),
        cwd: Path | None = None,
        ignored: Sequence[signal.Signals] = (),
        terminal: int | None = None,
    ) -> Running:
        """Start a command, in a session of its own.

        `ignored`: the signals that it is started to ignore; `terminal`: its controlling terminal,
        which is then its standard streams, too.
        """
        if terminal is not None:
            out = err = terminal

        def settle() -> None:
            # Not as in this process, which may be a script's background job.
            for number in _HANDLED:
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
            if terminal is not None:
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        self._started += 1
        out_file = self.place / f"{self._started}.out" if out is None else None
        err_file = self.place / f"{self._started}.err" if err is None else None
        with contextlib.ExitStack() as files:
            process = subprocess.Popen(
                [str(part) for part in (*program, *arguments)],
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=files.enter_context(out_file.open("wb")) if out_file else out,
                stderr=files.enter_context(err_file.open("wb")) if err_file else err,
                cwd=cwd or self.place,
                env=self.environment(**(env or {})),
                start_new_session=True,
                preexec_fn=settle,  # noqa: PLW1509 - in the child, which has one thread
            )
        running = Running(process, out_file, err_file)
        self._commands.append(running)
        return running

    def run(
        self, *arguments: object, env: Mapping[str, str] | None = None, within_s: float = 90.0
    ) -> Done:
        """Run a command to its end."""
        return self.start(*arguments, env=env).wait(within_s)

    def run_here(self, *arguments: object, env: Mapping[str, str] | None = None) -> Done:
        """Run a command in this process, which is much quicker than starting one. Its signals, streams
        and variables are its own; what it starts are processes as ever."""
        out, err = io.StringIO(), io.StringIO()
        before = {number: signal.getsignal(number) for number in _HANDLED}
        began = time.monotonic()
        try:
            with (
                contextlib.chdir(self.place),
                mock.patch.dict(os.environ, self.environment(**(env or {})), clear=True),
                mock.patch.object(sys, "argv", [str(RUN), *map(str, arguments)]),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                status = _exit_status(main)
        finally:
            # A command that has ended ignores them, since its process is about to end, too.
            for number, handler in before.items():
                signal.signal(number, handler)
        return Done(status, out.getvalue(), err.getvalue(), time.monotonic() - began)

    # --- what it leaves behind --------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """The only result there is."""
        return self._read(self.folder() / "result.json")

    def runs(self, role: str = "write") -> list[dict[str, Any]]:
        """Its runs; see `flatten`."""
        return [flatten(run, role) for run in self.result()["runs"]]

    def folder(self) -> Path:
        """The only result folder there is."""
        folders = self.folders()
        assert len(folders) == 1, folders
        return folders[0]

    def folders(self) -> list[Path]:
        """All result folders, oldest first."""
        return sorted(
            folder for output in self.outputs if output.is_dir() for folder in output.iterdir()
        )

    @staticmethod
    def _read(file: Path) -> dict[str, Any]:
        document = json.loads(file.read_bytes())
        assert isinstance(document, dict)
        return document

    def processes(self) -> list[psutil.Process]:
        """Living processes of this test's commands.

        They carry the mark in their environment; a PostgreSQL server's children overwrite theirs,
        but work in the data folder.
        """
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                folder = Path(process.cwd())
                if (
                    process.environ().get(_MARKER) == self._marker
                    or folder.is_relative_to(self.place)
                    or folder.is_relative_to(self.embedded_home)
                ):
                    processes.append(process)
        return processes

    def check_nothing_runs(self, within_s: float = 10.0) -> None:
        """All processes have ended, or do so by themselves within some seconds."""
        try:
            eventually(lambda: not self.processes(), "the end of all processes", within_s, 0.05)
        except AssertionError:
            processes = self.processes()
            names = []
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    names.append(" ".join(process.cmdline()) or process.name())
            self.end_all()
            raise AssertionError(f"left running after {within_s:g} s: {names}") from None

    def end_all(self) -> None:
        """Kill what is left of this test's own processes."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for running in self._commands:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(5)

    def check_left_behind(self) -> None:
        """No process, no temporary file, nothing half-written, no password."""
        self.check_nothing_runs()
        assert not list(self.temporary.iterdir())
        assert not list(self.place.rglob("*.part"))
        for folder in self.folders():
            assert {entry.name for entry in folder.iterdir()} <= {"result.json", "logs"}
            if not self.may_lack_results:
                assert (folder / "result.json").is_file(), f"{folder} has no result.json"
        for file in self.place.rglob("*"):
            if file.is_file() and file != self.config:
                content = file.read_bytes()
                assert PASSWORD.encode() not in content, f"the password is in {file}"
                if file.suffix == ".json":
                    json.loads(content)
