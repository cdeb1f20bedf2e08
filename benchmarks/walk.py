"""Which files the number of `--batch`, and one latency, go through.

    python -m benchmarks.walk [--latency]

Runs `insert` of some requests on the embedded PostgreSQL by a local process, and watches what command,
collector and worker call (`sys.setprofile`). A file of `cli/` or `simulator/` is on the way of `--batch`,
from the parsed command line until the first request is sent, if one of its functions is given, as an argument
besides `self`,

* the number itself, or
* an object that holds it in a field of its own, such as a load, an encoder or a payload of so many events, or
* an object or a sequence that holds such an object, such as a request or a job.

What shows the plan (`cli/show`) is left out. A file is on the way of a latency, from the socket to the
printed p99, if one of its functions is given, or returns,

* the instant at which an answer came, the time that it took, the histogram in which it counts, or its
  percentiles, or
* an object that holds one of these in a field of its own, or a sequence of such, such as a group's result.

What workers tell meanwhile is left out. What happens on import doesn't count, and a file that only passes on
something in which the thing lies deeper isn't in the list. Goals: 14 files, and 11.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .support import ROOT, scratch_folder, show, start_embedded_server

MOST_FILES, MOST_OF_LATENCY = 14, 11
BATCH = 7919
"""A number that nothing else has."""
EVENTS = 3 * BATCH
TIMED_EVENTS = 200
"""Enough for a p99."""

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

MOST_COARSE = 10_000  # parts of a histogram that is told meanwhile
times = set()  # the instant of the first answer, what it took, and p99 in ms
recent = {}  # times that functions were given or returned before the first was recorded

def is_it(thing):
    if number:
        return type(thing) is int and thing == number
    if type(thing) is float:
        return thing in times
    if type(thing).__name__ == "LatencyMs":
        times.add(thing.p99)
        return True
    return type(thing).__name__ == "Histogram" and thing.counts.size > MOST_COARSE

def carries(thing):
    if not number:
        things = thing[:50] if isinstance(thing, (tuple, list)) else [thing]
        return any(is_it(one) or any(map(is_it, fields(one))) for one in things)
    return is_it(thing) or any(
        is_it(held) or any(map(is_it, fields(held))) for held in fields(thing)
    )

def note(file, code, value, name):
    if type(value) is float and not times:
        recent.setdefault(value, {}).setdefault(file, [time.time(), code.co_qualname, name])

def watch(frame, event, _):
    global importing, sent_s
    code = frame.f_code
    if code.co_filename.startswith("<frozen importlib") and code.co_name == "exec_module":
        importing = max(0, importing + (event == "call") - (event == "return"))
    elif event == "call" and not importing and code.co_filename.startswith(root):
        file = code.co_filename[len(root):]
        if file in found or (number and sent_s is not None):
            return
        count = code.co_argcount + code.co_kwonlyargcount
        values = frame.f_locals
        if code.co_name in ("record", "record_due") and file.endswith("measure.py") and not times:
            answered, sent = values["answered"], values["sent"]
            times.update([answered, answered - sent])
            found.update(recent.get(answered, {}))
            caller = frame.f_back.f_code
            found[caller.co_filename[len(root):]] = [time.time(), caller.co_qualname, "answered"]
        for name in code.co_varnames[:count]:
            note(file, code, values.get(name), name)
            if name != "self" and carries(values.get(name)):
                found[file] = [time.time(), code.co_qualname, name]
                break
    elif event == "return" and not number and not importing and code.co_filename.startswith(root):
        file = code.co_filename[len(root):]
        note(file, code, _, "its answer")
        if file not in found and carries(_):
            found[file] = [time.time(), code.co_qualname, "its answer"]
    elif event == "c_call" and _.__name__ in ("send", "sendmsg") and sent_s is None:
        back = frame
        if back.f_code.co_filename.startswith(root + "simulator/modules"):
            sent_s = time.time()

def write():
    name = "command"
    if sys.argv[0] == "-c" or "launcher" in sys.argv:
        name = "worker" if sent_s is not None else "collector"
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
    of_latency = "--latency" in sys.argv[1:]
    batch, events = (0, TIMED_EVENTS) if of_latency else (BATCH, EVENTS)
    with scratch_folder() as folder, start_embedded_server() as dsn:
        (folder / "sitecustomize.py").write_text(_WATCHED)
        out = folder / "out"
        out.mkdir()
        target = {"module": "postgres", "executor": "local", "connection_string": dsn}
        (folder / "config.yaml").write_text(json.dumps({"targets": {"here": target}}))
        subprocess.run(
            [
                sys.executable, ROOT / "run.py", "insert", "--target", "here", "--workers", "1",
                "--runs", "1", "--batch", str(batch), "--num-inserts", str(events),
                *(["--rate", "200"] if of_latency else []),
                "--config", folder / "config.yaml", "--output", folder / "results",
            ],
            env={
                **os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "WALK_ROOT": str(ROOT),
                "WALK_OUT": str(out), "WALK_NUMBER": str(batch),
            },
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        rows = list_files(out, of_latency)
    show(["File", "Process", "Function", "Argument"], rows)
    most = MOST_OF_LATENCY if of_latency else MOST_FILES
    print(f"\n{len(rows)} files, {most} at most")
    return int(len(rows) > most)


def list_files(out: Path, of_latency: bool) -> list[list[str]]:
    """The files on the way in order, each with the process, function and argument that were first."""
    processes = ("worker", "collector", "command") if of_latency else ("command", "worker")
    steps: dict[str, tuple[float, str, str, str]] = {}
    until_s = float("inf")
    for path in out.glob("worker-*.json"):
        until_s = until_s if of_latency else json.loads(path.read_text())["sent_s"]
    for process in processes:
        for path in out.glob(f"{process}-*.json"):
            for file, (at_s, function, argument) in json.loads(path.read_text())["found"].items():
                is_ours = file.startswith(("cli/", "simulator/"))
                is_shown = file.startswith("cli/show/") and not of_latency
                if is_ours and not is_shown and at_s <= until_s:
                    steps.setdefault(file, (at_s, process, function, argument))
    ordered = sorted(steps.items(), key=lambda step: step[1][0])
    return [[file, *rest] for file, (_, *rest) in ordered]


if __name__ == "__main__":
    sys.exit(main())
