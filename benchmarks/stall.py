"""The example of docs/how-to/inserts.md: a database that stalls, as a closed and as an open loop see it.

    python -m benchmarks.stall PREFIX

Two `insert` commands against the embedded server, with a data folder of their own. In the middle of each,
another session locks the table for five seconds, in which nobody can write. The results are written to
PREFIX-closed.json and PREFIX-open.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg2

from .support import ROOT, scratch_folder

STALL_S = 5.0
CLOSED = (
    "--target", "embedded", "--workers", "2", "--runs", "1", "--batch", "100",
    "--duration", "40s", "--warm-up", "10s",
)  # fmt: skip
OPEN = (*CLOSED, "--rate", "20000")


def insert(arguments: tuple[str, ...], result: Path, folder: Path) -> None:
    """One command, and the stall in the middle of its window."""
    options = [*arguments, "--json", str(result.resolve())]
    command = [sys.executable, str(ROOT / "run.py"), "insert", *options]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "EMBEDDED_DATA_DIR": str(folder / "server")},
    )
    assert process.stderr is not None
    stalled = False
    for line in process.stderr:
        print(line, end="")
        if ": running" in line and not stalled:
            time.sleep(12)
            stall(folder / "server" / "data")
            stalled = True
    if process.wait():
        sys.exit(process.returncode)


def stall(data: Path) -> None:
    """Let nobody write for a while."""
    # https://www.postgresql.org/docs/current/storage-file-layout.html: the socket's folder is in line 5.
    host = (data / "postmaster.pid").read_text().splitlines()[4]
    with closing(psycopg2.connect(host=host, user="postgres", dbname="postgres")) as connection:
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        time.sleep(STALL_S)
        connection.rollback()


def main() -> None:
    """Make both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix")
    prefix = parser.parse_args().prefix
    for name, arguments in (("closed", CLOSED), ("open", OPEN)):
        with scratch_folder() as folder:
            (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
            insert(arguments, Path(f"{prefix}-{name}.json"), folder)


if __name__ == "__main__":
    main()
