"""Several runs in one pod: the runs of one worker count, each in a new process forked from one that
has imported everything and connected to nothing.

Starting pods costs seconds for each run; a forked process is as clean as a new pod's, and equal for
each run.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from .build import build
from .contract import Carried, RunSettings
from .errors import SimulatorError

Work = Callable[[RunSettings], tuple[int, Carried | None]]
"""Does a run: its exit status, and what the next one goes on from."""


_USED_LATER = {
    "simulator.collector": ("uvicorn.lifespan.off", "uvicorn.loops.auto",
                            "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto"),
    "simulator.worker": ("httpcore",),
}  # fmt: skip
"""What the two roles' libraries import only when they are first used: up to 0.1 s of CPU."""


def run_series(series: Sequence[RunSettings], work: Work) -> int:
    """Do the runs one after the other; ends with the first that fails. The exit status."""
    if len(series) == 1:
        return work(series[0])[0]
    _import_the_rest(series[0])
    carried: Carried | None = None
    for settings in series:
        if carried:
            settings.after = carried
        status, carried = _run_in_child(work, settings)
        if status:
            return status
    return 0


def _import_the_rest(settings: RunSettings) -> None:
    """Import, once for all runs, what each would import by itself."""
    role = next(name for name in _USED_LATER if name in sys.modules)
    for name in _USED_LATER[role]:
        import_module(name)
    with suppress(SimulatorError):  # whatever is wrong with them is for the run to say
        build(settings)


def _run_in_child(work: Work, settings: RunSettings) -> tuple[int, Carried | None]:
    """`work` in a child process."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _become_child(work, settings, write)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
    except SystemExit:
        # SIGTERM: the child goes with us.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    exit_status = os.waitstatus_to_exitcode(status)
    # A shell reports signal n as 128 + n.
    exit_status = 128 - exit_status if exit_status < 0 else exit_status
    return exit_status, Carried.model_validate_json(text) if text else None


def _become_child(work: Work, settings: RunSettings, pipe: int) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        status, carried = work(settings)
        if carried:
            os.write(pipe, carried.model_dump_json().encode())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing of a child may run on in its parent's code
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
