"""The launcher by its own protocol, where the system refuses what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..helpers import settings

_NO_FORKS = """
import errno, os
from simulator.main import run_launcher

fork, left = os.fork, [errno.EAGAIN, errno.ENOMEM]
def refuse():
    if left:
        raise OSError(left[0], os.strerror(left.pop(0)))
    return fork()
os.fork = refuse
run_launcher()
"""


def test_a_fork_that_fails_is_refused_and_the_next_is_made(tmp_path: Path) -> None:
    """It ended the launcher, and with it all processes of the run."""
    request = {
        "launch": "worker", "number": 0, "collector": "http://127.0.0.1:9",
        "settings": settings().model_dump(mode="json"), "log": str(tmp_path / "worker-0.log"),
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", _NO_FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as launcher:  # fmt: skip
        stdin, stdout = launcher.stdin, launcher.stdout
        assert stdin is not None and stdout is not None

        def ask() -> dict[str, Any]:
            print(json.dumps(request), file=stdin, flush=True)
            return dict(json.loads(stdout.readline()))

        problems = ["Resource temporarily unavailable", "Cannot allocate memory"]
        for problem in problems:
            assert ask() == {"refused": f"can't start a worker: {problem}"}
        assert "launched" in ask()
        stdin.close()
        assert launcher.wait(60) == 0
