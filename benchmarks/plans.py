"""Each database's plan for each common query, and how long it takes beside other forms of it.

    python -m benchmarks.plans [--events N] [--devices N] [--plans] [--only TEXT] [--stored TEXT] [SYSTEM…]

Events of `machines` are stored (of `temperature` for newest-per-device), in each way that `SETUPS` names.
Each query is drawn some times; the statement that the module compiles and the other forms that `plan_cases`
has are asked in turns, which begin alternately, and every form's answer is compared with the right one. Times
are medians in ms, sent to received, not decoded. A ratio is the compiled statement's time by the other's:
above 1.5 the other should be the default. `--plans` prints each statement and what the database says of it.
For the variables that say where a server is see docs/contributing.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from copy import copy
from statistics import median

from simulator.contract import StoredPart
from simulator.modules.base import AnyModule
from simulator.modules.sending import Asker
from simulator.oracle.answers import answer, compare_answers
from simulator.workloads import load_workload
from simulator.workloads.drawing import BoundQueries, Stored, draw_block

from .plan_cases import SETUPS, SIZE, SIZES, SYSTEMS, list_forms, stored
from .plan_explaining import explain
from .plan_forms import Form
from .support import read_machines, show

ROUNDS = 9
WARM_ROUNDS = 6
"""After five executions PostgreSQL may make a plan for all parameters."""
LONG_S, LONG_ROUNDS = 0.5, 5
"""What takes longer is asked a few times only."""
OURS = "compiled"
HEADERS = ("Setup", "Query", "Form", "ms", "Compiled/this", "Answer")


def open_asker(module: AnyModule, form: Form) -> Asker:
    """An asker for one form of a query, which asks as a reader does: prepared if the module prepares."""
    varied = copy(module)
    varied.compile = form.compiled  # type: ignore[method-assign, assignment]
    varied.options = module.options.model_copy(update=form.change(module.options))
    asker = varied.asker()
    asker.open()
    return asker


def measure(
    module: AnyModule, bounds: BoundQueries, stored_events: Stored, forms: Mapping[str, Form]
) -> dict[str, tuple[float, str]]:
    """Form -> median seconds, and what is wrong with its first answer."""
    right = answer(bounds[0], stored_events)
    took: dict[str, list[float]] = {name: [] for name in forms}
    with ExitStack() as stack:
        askers, requests, wrong = {}, {}, {}
        for name, form in forms.items():
            asker = askers[name] = open_asker(module, form)
            stack.callback(asker.close)
            requests[name] = list(
                map(asker.encode_statement, map(form.compiled, bounds))
                if form.alone
                else asker.encode(bounds)
            )
            wrong[name] = compare_answers(right, asker.decode(asker.ask(requests[name][0])))
        for number in range(WARM_ROUNDS + ROUNDS):
            for name in list(forms)[:: 1 if number % 2 else -1]:
                began = time.perf_counter()
                askers[name].ask(requests[name][number])
                took[name].append(time.perf_counter() - began)
            if number + 1 >= LONG_ROUNDS and max(map(max, took.values())) > LONG_S:
                break
    return {
        name: (median(times_s[WARM_ROUNDS:] or times_s), wrong[name] or "right")
        for name, times_s in took.items()
    }


def run_setup(
    name: str, dsn: str, setup: str, size: tuple[int, int], arguments: argparse.Namespace
) -> list[list[str]]:
    """The lines of one way to store so many events of so many devices."""
    event_count, device_count = size
    workload_name, tags, values = SETUPS[name][setup]
    more = {"tags": tags} if tags else {}
    machines = workload_name == "machines"
    definition = (read_machines(SYSTEMS[name].module),) if machines else ()
    workload = load_workload(workload_name, *definition)(seed=0, device_spread=device_count, **more)
    stored_events = Stored(workload, [StoredPart(0, 0, event_count)])
    devices = [str(device, "ascii") for device in workload.devices(0)]
    lines = []
    with stored(name, dsn, workload, event_count, values) as module:
        for query in module.job.schema.descriptions:
            if arguments.only not in query.name or not workload.schema.shapes_of(
                query
            ) <= frozenset(module.CAPABILITIES.shapes):
                continue
            count = WARM_ROUNDS + ROUNDS
            bounds = draw_block(query, stored_events, 0, 0, count)
            forms = {OURS: Form(module.compile), **list_forms(name, module, query, devices)}
            if arguments.plans:
                for label, form in forms.items():
                    statement = form.compiled(bounds[0])
                    text, plan = (
                        module.describe_statement(statement),
                        explain(name, module, statement),
                    )
                    print(
                        f"\n--- {name}, {setup}: {query.name}, {label}\n{text}\n{plan}", flush=True
                    )
            figures = measure(module, bounds, stored_events, forms)
            for label, (took_s, wrong) in figures.items():
                ratio = "" if label == OURS else f"{figures[OURS][0] / took_s:.2f}"
                lines.append([setup, query.name, label, f"{took_s * 1e3:.2f}", ratio, wrong])
                print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    return lines


def main() -> int:
    """Measure the systems, each with all its setups."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--plans", action="store_true", help="print statements and plans, too")
    parser.add_argument("--only", default="", help="queries whose names have this in them")
    parser.add_argument("--stored", default="", help="ways to store whose names have this in them")
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=", ".join(SETUPS))
    arguments = parser.parse_args()
    for name in arguments.systems or [system for system in SETUPS if not SYSTEMS[system].missing]:
        events, devices = SIZES.get(name, SIZE)
        size = (arguments.events or events, arguments.devices or devices)
        with SYSTEMS[name].server() as dsn:
            lines = [
                line
                for setup in SETUPS[name]
                if arguments.stored in setup
                for line in run_setup(name, dsn, setup, size, arguments)
            ]
        print(f"\n{name}, {size[0]:,} events of {size[1]:,} devices")
        show(HEADERS, lines, texts=3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
