"""The work of `capacity`: search, keep the result, print the answer."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace

from simulator.contract import Load
from simulator.errors import OptionError
from simulator.units import format_span

from ...errors import ConfigError
from ...output import note, print_prose, say, terminal_width
from ...plan import (
    Sweep,
    check_capabilities,
    check_load,
    check_query,
    check_workload,
    public_data,
    public_load,
    share_devices,
)
from ...render.answers import describe_answers
from ...render.capacity import describe_capacity, describe_steps, tabulate_capacity
from ...render.notes import summarize_notes
from ...render.progress import Display
from ...results.model import Result
from ...signals import Interrupts
from ..context import RunContext
from ..experiment import Experiment, run_experiment
from ..query import choose_queries
from ..session import CommonOptions, Session, open_session
from .answer import find_answer
from .limits import check_limits
from .state import CapacityRequest, SearchState
from .steps import find_capacity


def run_capacity(
    wanted: CapacityRequest, request: CommonOptions, given: Collection[str], interrupts: Interrupts
) -> int:
    """Search; the exit status. What is done when something goes wrong is kept. `given`: the options that
    stood on the command line."""
    session = open_session(request)
    # The target's disturbances are for runs that ask what they do.
    session.disturbances = ()
    wanted = check_quest(wanted, given, session)
    return run_experiment(
        _CapacityExperiment(wanted, session), "capacity", session, wanted.loads, interrupts
    )


def check_quest(
    wanted: CapacityRequest, given: Collection[str], session: Session
) -> CapacityRequest:
    """The quest with all that session and target know; ConfigError if what is asked for doesn't go
    together, or the module can't do it."""
    check_load(wanted.writers, set(given) - {"arrivals"})
    data = session.complete(wanted.data, existing=False)
    readers = wanted.readers
    shared = share_devices(data, wanted.writers.workers)
    sweep = Sweep(wanted.writers, shared, [wanted.writers.workers], given=frozenset(given))
    check_capabilities(sweep, session.module, session.options)
    if readers is not None:
        readers = choose_queries(readers, session)
        check_query(readers, shared, session.module, session.options)
        if not data.prefill:
            note(
                "the readers have nothing to ask about but what the writers insert meanwhile: give --fill"
            )
    wanted = replace(wanted, data=data, readers=readers)
    try:
        check_limits(wanted.limits, _list_asked(wanted, session), wanted.readers)
    except OptionError as error:
        raise ConfigError(str(error)) from error
    return wanted


def _list_asked(wanted: CapacityRequest, session: Session) -> list[str] | None:
    """The readers' queries; None if there are no readers."""
    if wanted.readers is None:
        return None
    job = check_workload(wanted.readers, wanted.data, session.module)
    return session.module(session.assume_options(), job).choose_queries()


class _CapacityExperiment(Experiment):
    """The steps made so far."""

    def __init__(self, wanted: CapacityRequest, session: Session) -> None:
        self._state = SearchState(wanted)
        self.prefill = wanted.data.prefill
        self._session = session

    @property
    def count(self) -> int:
        return len(self._state.runs)

    def make(self, context: RunContext, display: Display) -> None:
        wanted = self._state.wanted
        context.executor.check_capacity([wanted.workers])
        note(describe_length(wanted))
        find_capacity(self._state, context, display)

    def result(self, context: RunContext, complete: bool) -> Result:
        state, session = self._state, self._session
        wanted = state.wanted
        return context.make_result(
            "capacity",
            session,
            list_options(wanted)
            | {"insert_mode": session.options and session.options.mode(wanted.writers.batch)},
            state.environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=state.runs,
            reads=state.reads,
            capacity=find_answer(state, session.target.cost_per_hour),
        )

    def show(self, result: Result) -> None:
        terminal = sys.stdout.isatty()
        say(tabulate_capacity(result, terminal).text(width=terminal_width()))
        print_prose(f"{describe_steps(result)}\n")
        for line in describe_capacity(result):
            print_prose(line)
        for line in summarize_notes(result, terminal, describe_answers(result)):
            print_prose(line)


def describe_length(wanted: CapacityRequest) -> str:
    """How long a search takes at most, without what is before and after each step."""
    all_s = sum(load.duration_s or 0.0 for load in wanted.loads)
    fill = (
        f", and the time to insert {wanted.data.prefill:,} events before each"
        if wanted.data.prefill
        else ""
    )
    return (
        f"a closed loop and at most {wanted.max_steps} steps of {wanted.writers.duration_s:g} s:"
        f" {format_span(all_s)} at most, without what is before and after each step{fill}"
    )


def list_options(wanted: CapacityRequest) -> dict[str, object]:
    """What was asked for, as the result keeps it."""
    readers = wanted.readers
    options: dict[str, object] = {
        "workers": [wanted.writers.workers],
        "limits": [str(limit) for limit in wanted.limits],
        "precision": wanted.precision,
        "max_steps": wanted.max_steps,
        **_list_load(wanted.writers),
        **public_data(wanted.data),
    }
    if readers is not None:
        options |= {
            "readers": readers.workers,
            "query_rate_per_s": readers.rate_per_s,
            "queries": readers.weights or readers.queries,
            "redraw": readers.redraw,
            "check": readers.check,
        }
    return options


def _list_load(load: Load) -> dict[str, object]:
    """The writers' load. Each step has a rate of its own, but all have their arrivals alike."""
    own = public_load(load)
    own.pop("rate_per_s", None)
    return own | {"arrivals": str(load.arrivals)}
