#!/usr/bin/env python3
"""Starts and stops the server that is measured, by a script of yours: README.md says what that must do.

    SERVERS=/path/to/script comparison/server.py start NAME [VARIABLE=VALUE…]
    SERVERS=/path/to/script comparison/server.py stop
    SERVERS=/path/to/script comparison/server.py kill      SIGKILL to its processes, and start it again

Which one runs is kept in a file of the temporary folder, so that `stop` and `kill` need no name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

STATE = Path(tempfile.gettempdir()) / f"comparison-server-{os.getuid()}.json"


def start(name: str, variables: list[str]) -> None:
    """Start it with these variables of the environment, and keep what it is."""
    environment = os.environ | dict(one.split("=", 1) for one in variables)
    # Not through a pipe, which a server may keep open for good.
    with tempfile.TemporaryFile("w+") as said:
        command = [find_script(), "start", name]
        subprocess.run(command, env=environment, stdout=said, check=True)
        said.seek(0)
        pids = json.loads(said.read().strip().splitlines()[-1])["pids"]
    STATE.write_text(json.dumps({"name": name, "variables": variables, "pids": pids}))


def stop() -> None:
    """Stop it; nothing if none runs."""
    with suppress(FileNotFoundError):
        subprocess.run([find_script(), "stop", json.loads(STATE.read_text())["name"]], check=True)
        STATE.unlink()


def kill() -> None:
    """End it as a crash would, with the processes that it has started, and start it again."""
    state = json.loads(STATE.read_text())
    killed = list_descendants(state["pids"])
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # A large process ends a while after its signal; until then the script takes it for one that runs.
    while list_alive(killed):
        time.sleep(0.02)
    start(state["name"], state["variables"])


def list_descendants(pids: list[int]) -> list[int]:
    """These processes and all below them, the ones that start others first."""
    pairs = [(int(pid), int(parent)) for pid, parent, _ in list_processes()]
    found = list(pids)
    for parent in found:
        found += [pid for pid, above in pairs if above == parent]
    return found


def list_alive(pids: list[int]) -> list[int]:
    """Those of them of which a thread is left: not those that only nobody has waited for."""
    found = {int(pid): state for pid, _, state in list_processes()}
    return [pid for pid in pids if found.get(pid, "Z")[0] != "Z" or "l" in found.get(pid, "")]


def list_processes() -> list[list[str]]:
    """ID, parent's ID and state of each."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True, check=True
    )
    return [line.split() for line in listed.stdout.splitlines()]


def find_script() -> str:
    """The user's."""
    if not os.environ.get("SERVERS"):
        sys.exit("SERVERS must name the script that starts servers: see comparison/README.md")
    return os.environ["SERVERS"]


def main(words: list[str]) -> None:
    """Do what the command line says."""
    if words[:1] == ["start"] and len(words) > 1:
        start(words[1], words[2:])
    elif words == ["stop"]:
        stop()
    elif words == ["kill"]:
        kill()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd))} ended with status {error.returncode}")
