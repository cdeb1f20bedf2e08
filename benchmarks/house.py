"""How much of the house one minimal insert walks through: files and functions of its command and worker.

    python -m benchmarks.house

Runs `insert --target blackhole` with one worker, ten events and one run as a local process, and counts what
was called (`sys.setprofile`) in `cli/` and `simulator/`: modules without a call, whose code only was read,
don't count, nor does what happened at import. A comprehension and a lambda belong to the function that they
stand in. Goals: 60 files and 400 functions of the command line, 30 files of the worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from .support import ROOT, scratch_folder, show

GOALS = {"command": (60, 400), "worker": (30, None)}
WRITE_PATIENCE_S = 10.0

_WATCHED = """
import json, os, signal, sys, threading
root = os.environ["HOUSE_ROOT"] + os.sep
called = set()
importing = 0

def watch(frame, event, _):
    global importing
    code = frame.f_code
    if code.co_filename.startswith("<frozen importlib") and code.co_name == "exec_module":
        # What is under way when this begins ends without having begun.
        importing = max(0, importing + (event == "call") - (event == "return"))
    elif event == "call" and not importing and code.co_filename.startswith(root):
        called.add((code.co_filename[len(root):], code.co_qualname.split(".<locals>.<")[0]))

def write():
    name = "command"
    if sys.argv[0] == "-c" or "launcher" in sys.argv:
        files = {file for file, _ in called}
        name = "worker" if "simulator/worker/base.py" in files else "other"
    path = os.path.join(os.environ["HOUSE_OUT"], f"{name}-{os.getpid()}.json")
    with open(path + ".part", "w") as file:
        json.dump(sorted(called), file)
    # Whole or not at all: a process may be killed meanwhile.
    os.replace(path + ".part", path)

def leave(status, _exit=os._exit):
    write()
    _exit(status)

os._exit = leave
import atexit
atexit.register(write)
def begin_anew():
    called.clear()
    # The command ends a worker once it has its report, and the launcher's process group in the end.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

os.register_at_fork(after_in_child=begin_anew)
sys.setprofile(watch)
threading.setprofile(watch)
"""


def main() -> int:
    """Count, and say whether the goals are met."""
    with scratch_folder() as folder:
        (folder / "sitecustomize.py").write_text(_WATCHED)
        out = folder / "out"
        out.mkdir()
        (folder / "config.yaml").write_text(
            "targets: {hole: {module: blackhole, executor: local}}\n"
        )
        subprocess.run(
            [
                sys.executable, ROOT / "run.py", "insert", "--target", "hole", "--workers", "1",
                "--runs", "1", "--num-inserts", "10", "--config", folder / "config.yaml",
                "--output", folder / "results",
            ],
            env={
                **os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "HOUSE_ROOT": str(ROOT),
                "HOUSE_OUT": str(out),
            },
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        until_s = time.monotonic() + WRITE_PATIENCE_S
        while not list(out.glob("worker-*.json")):
            if time.monotonic() > until_s:
                sys.exit(f"the worker has not written what it called within {WRITE_PATIENCE_S:g} s")
            time.sleep(0.02)
        rows, missed = [], False
        for name, (most_files, most_functions) in GOALS.items():
            files, functions = count(out, name)
            missed |= files > (most_files) or functions > (most_functions or functions)
            rows.append([name, *map(str, (files, most_files, functions, most_functions or "-"))])
    show(["Process", "Files", "At most", "Functions", "At most"], rows)
    return int(missed)


def count(out: Path, name: str) -> tuple[int, int]:
    """Files and functions that processes of this name called."""
    called = {
        (file, function)
        for path in out.glob(f"{name}-*.json")
        for file, function in json.loads(path.read_text())
        if file.startswith(("cli/", "simulator/"))
    }
    return len({file for file, _ in called}), len(called)


if __name__ == "__main__":
    sys.exit(main())
