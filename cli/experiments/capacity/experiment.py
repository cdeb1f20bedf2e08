"""The work of `capacity`: search, keep the result, print the answer."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace

from simulator.contract import Load
from simulator.errors import OptionError
from simulator.units import format_span

from ...errors import ConfigError
from ...output import note, say, say_prose, terminal_width
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
from ..context import Running
from ..experiment import Making, make_all
from ..query import choose_queries
from ..session import Request, Session, open_session
from .answer import find_answer
from .limits import check_limits
from .state import Course, Quest
from .steps import find_capacity


def run_capacity(
    quest: Quest, request: Request, given: Collection[str], interrupts: Interrupts
) -> int:
    """Search; the exit status. What is done when something goes wrong is kept. `given`: the options that
    stood on the command line."""
    session = open_session(request)
    # The target's disturbances are for runs that ask what they do.
    session.disturbances = ()
    quest = check_quest(quest, given, session)
    return make_all(_Capacity(quest, session), "capacity", session, quest.loads, interrupts)


def check_quest(quest: Quest, given: Collection[str], session: Session) -> Quest:
    """The quest with all that session and target know; ConfigError if what is asked for doesn't go
    together, or the module can't do it."""
    check_load(quest.writers, set(given) - {"arrivals"})
    data = session.complete(quest.data, existing=False)
    readers = quest.readers
    shared = share_devices(data, quest.writers.workers)
    sweep = Sweep(quest.writers, shared, [quest.writers.workers], given=frozenset(given))
    check_capabilities(sweep, session.module, session.options)
    if readers is not None:
        readers = choose_queries(readers, session)
        check_query(readers, shared, session.module, session.options)
        if not data.prefill:
            note(
                "the readers have nothing to ask about but what the writers insert meanwhile: give --fill"
            )
    quest = replace(quest, data=data, readers=readers)
    try:
        check_limits(quest.limits, _list_asked(quest, session), quest.readers)
    except OptionError as error:
        raise ConfigError(str(error)) from error
    return quest


def _list_asked(quest: Quest, session: Session) -> list[str] | None:
    """The readers' queries; None if there are no readers."""
    if quest.readers is None:
        return None
    job = check_workload(quest.readers, quest.data, session.module)
    return session.module(session.assume_options(), job).choose_queries()


class _Capacity(Making):
    """The steps made so far."""

    def __init__(self, quest: Quest, session: Session) -> None:
        self._course = Course(quest)
        self.prefill = quest.data.prefill
        self._session = session

    @property
    def count(self) -> int:
        return len(self._course.runs)

    def make(self, running: Running, display: Display) -> None:
        quest = self._course.quest
        running.executor.check_capacity([quest.workers])
        note(describe_length(quest))
        find_capacity(self._course, running, display)

    def result(self, running: Running, complete: bool) -> Result:
        course, session = self._course, self._session
        quest = course.quest
        return running.make_result(
            "capacity",
            session,
            list_options(quest)
            | {"insert_mode": session.options and session.options.mode(quest.writers.batch)},
            course.environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=course.runs,
            reads=course.reads,
            capacity=find_answer(course, session.target.cost_per_hour),
        )

    def show(self, result: Result) -> None:
        terminal = sys.stdout.isatty()
        say(tabulate_capacity(result, terminal).text(width=terminal_width()))
        say_prose(f"{describe_steps(result)}\n")
        for line in describe_capacity(result):
            say_prose(line)
        for line in summarize_notes(result, terminal, describe_answers(result)):
            say_prose(line)


def describe_length(quest: Quest) -> str:
    """How long a search takes at most, without what is before and after each step."""
    all_s = sum(load.duration_s or 0.0 for load in quest.loads)
    fill = (
        f", and the time to insert {quest.data.prefill:,} events before each"
        if quest.data.prefill
        else ""
    )
    return (
        f"a closed loop and at most {quest.max_steps} steps of {quest.writers.duration_s:g} s:"
        f" {format_span(all_s)} at most, without what is before and after each step{fill}"
    )


def list_options(quest: Quest) -> dict[str, object]:
    """What was asked for, as the result keeps it."""
    readers = quest.readers
    options: dict[str, object] = {
        "workers": [quest.writers.workers],
        "limits": [str(limit) for limit in quest.limits],
        "precision": quest.precision,
        "max_steps": quest.max_steps,
        **_list_load(quest.writers),
        **public_data(quest.data),
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
