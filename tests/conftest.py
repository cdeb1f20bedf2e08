"""Servers for the whole test session."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg2
import pytest

from cli.run.embedded import EmbeddedPostgres
from cli.system.processes import Interrupts


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays. To look through it for garbage again and again costs each process a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LOCALES = "locales"
"""The folder beside the embedded PostgreSQL's data in which tests may put locales, before they are used."""

DISTURBED = (
    "started up to .* late",
    "the load generator stood still",
    "the load generator was late",
)
"""What the tool rightly says of itself where browsers, databases and pods of other tests have the CPUs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Repeat tests of whole runs that failed since this machine had other work to do."""
    for item in items:
        if item.path.parent.name in ("e2e", "kubernetes"):
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=list(DISTURBED)))


MOST_LINES = 10
"""Of the summary of skipped tests."""


def summarize_skips(reasons: Iterable[str]) -> list[str]:
    """How many tests each reason has skipped, the most first; the last line sums up what is left."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons).most_common()
    shown = counts if len(counts) <= MOST_LINES else counts[: MOST_LINES - 1]
    lines = [f"{count:,} {'test' if count == 1 else 'tests'}: {reason}" for reason, count in shown]
    if rest := counts[len(shown) :]:
        others = f"{sum(count for _, count in rest):,} tests"
        lines.append(f"{others}: {len(rest)} other reasons; pytest -rs lists them all")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, in a few lines; each for itself only with -rs."""
    skipped = terminalreporter.getreports("skipped")
    if skipped and "s" not in terminalreporter.reportchars:
        terminalreporter.section("skipped")
        for line in summarize_skips(report.longrepr[2] for report in skipped):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def embedded_postgres() -> Iterator[tuple[str, Path]]:
    """The embedded PostgreSQL, one per pytest process: (connection string, its data folder)."""
    # Not pytest's tmp_path: its paths come near the length that a socket's may have.
    home = Path(tempfile.mkdtemp(prefix="iot-"))
    try:
        # Interrupts is not entered: signals stay pytest's.
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            patch.setenv("LOCPATH", str(home / LOCALES))
            server = stack.enter_context(EmbeddedPostgres(str(home), Interrupts()))
            patch.undo()
            connection = psycopg2.connect(server.connection_string)
            connection.autocommit = True
            with connection.cursor() as cursor:
                # The tests need no crash safety, but they share a disk with the other processes.
                cursor.execute("ALTER SYSTEM SET fsync = off")
                cursor.execute("SELECT pg_reload_conf()")
            connection.close()
            yield server.connection_string, home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_dsn(embedded_postgres: tuple[str, Path]) -> str:
    """Connection string of a PostgreSQL that nobody but this process uses."""
    return embedded_postgres[0]
