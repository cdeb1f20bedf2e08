"""Which files the number of `--batch` goes through, from the command line to the socket of PostgreSQL.

    python -m benchmarks.walk

Runs `insert --batch 7919` of three requests on the embedded PostgreSQL by a local process, and watches what
the command and the worker call (`sys.setprofile`) from the parsed command line until the first request is
sent. A file of `cli/` or `simulator/` is on the way if one of its functions is given, as an argument besides
`self`,

* the number itself, or
* an object that holds it in a field of its own, such as a load, an encoder or a payload of so many events, or
* an object or a sequence that holds such an object, such as a request or a job.

What happens on import doesn't count, nor what is called after the request was sent, nor what shows the plan
(`cli/show`). A file that only passes on something in which the number lies deeper isn't in the list.

Goal: 14 files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .support import ROOT, scratch_folder, show, start_embedded_server

MOST_FILES = 14
BATCH = 7919
"""A number that nothing else has."""
EVENTS = 3 * BATCH

_WATCHED = """
import atexit, json, os, signal, sys, threading, time
root, number = os.environ["WALK_ROOT"] + os.sep, int(os.environ["WALK_NUMBER"])
found, sent_s, importing = {}, None, 0

def fields(thing):
    if isinstance(thing, (tuple, list)):
        return thing[:50]
    own = getattr(thing, "__dict__", None)
    values = list(own.values()) if own is not None else []
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            values.append(getattr(thing, name, None))
    return values

def is_it(thing):
    return type(thing) is int and thing == number

def carries(thing):
    return is_it(thing) or any(
        is_it(held) or any(map(is_it, fields(held))) for held in fields(thing)
    )

def watch(frame, event, _):
    global importing, sent_s
    code = frame.f_code
    if code.co_filename.startswith("<frozen importlib") and code.co_name == "exec_module":
        importing = max(0, importing + (event == "call") - (event == "return"))
    elif event == "call" and not importing and code.co_filename.startswith(root):
        file = code.co_filename[len(root):]
        if file in found or sent_s is not None:
            return
        count = code.co_argcount + code.co_kwonlyargcount
        values = frame.f_locals
        for name in code.co_varnames[:count]:
            if name != "self" and carries(values.get(name)):
                found[file] = [time.time(), code.co_qualname, name]
                break
    elif event == "c_call" and _.__name__ in ("send", "sendmsg") and sent_s is None:
        back = frame
        if back.f_code.co_filename.startswith(root + "simulator/modules"):
            sent_s = time.time()

def write():
    name = "command"
    if sys.argv[0] == "-c" or "launcher" in sys.argv:
        name = "worker" if sent_s is not None else "other"
    path = os.path.join(os.environ["WALK_OUT"], f"{name}-{os.getpid()}.json")
    with open(path, "w") as file:
        json.dump({"sent_s": sent_s, "found": found}, file)

def leave(status, _exit=os._exit):
    write()
    _exit(status)

os._exit = leave
atexit.register(write)

def begin_anew():
    # The command ends a worker once it has its report, and the launcher's process group in the end.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

os.register_at_fork(after_in_child=begin_anew)
sys.setprofile(watch)
threading.setprofile(watch)
"""


def main() -> int:
    """List the files, and say whether there are few enough."""
    with scratch_folder() as folder, start_embedded_server() as dsn:
        (folder / "sitecustomize.py").write_text(_WATCHED)
        out = folder / "out"
        out.mkdir()
        target = {"module": "postgres", "executor": "local", "connection_string": dsn}
        (folder / "config.yaml").write_text(json.dumps({"targets": {"here": target}}))
        subprocess.run(
            [
                sys.executable, ROOT / "run.py", "insert", "--target", "here", "--workers", "1",
                "--runs", "1", "--batch", str(BATCH), "--num-inserts", str(EVENTS),
                "--config", folder / "config.yaml", "--output", folder / "results",
            ],
            env={
                **os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "WALK_ROOT": str(ROOT),
                "WALK_OUT": str(out), "WALK_NUMBER": str(BATCH),
            },
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        rows = list_files(out)
    show(["File", "Process", "Function", "Argument"], rows)
    print(f"\n{len(rows)} files, {MOST_FILES} at most")
    return int(len(rows) > MOST_FILES)


def list_files(out: Path) -> list[list[str]]:
    """The files on the way in order, each with the process, function and argument that were first."""
    [worker] = [json.loads(path.read_text()) for path in out.glob("worker-*.json")]
    [command] = [json.loads(path.read_text()) for path in out.glob("command-*.json")]
    steps: dict[str, tuple[float, str, str, str]] = {}
    for process, watched in (("command", command), ("worker", worker)):
        for file, (at_s, function, argument) in watched["found"].items():
            is_ours = file.startswith(("cli/", "simulator/")) and not file.startswith("cli/show/")
            if is_ours and at_s <= worker["sent_s"]:
                steps.setdefault(file, (at_s, process, function, argument))
    ordered = sorted(steps.items(), key=lambda step: step[1][0])
    return [[file, *rest] for file, (_, *rest) in ordered]


if __name__ == "__main__":
    sys.exit(main())
