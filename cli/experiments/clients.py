"""The work of `clients`: runs by the lean path and by official clients in turns, and their table."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.contract import DataSet, InsertRun, Load, Report
from simulator.errors import did_you_mean
from simulator.modules.options import LEAN

from ..errors import ConfigError, RunFailed, RunGivenUp
from ..output import say, say_prose, terminal_width
from ..plan import Sweep, check_capabilities, public_data, public_load, share_devices
from ..render.clients import describe_clients, tabulate_clients
from ..render.notes import summarize_notes
from ..render.progress import Display
from ..results.model import ClientComparison, ClientTurn, Result
from ..signals import Interrupts
from .context import Running, describe_failure
from .experiment import Making, make_all
from .insert import join_environments
from .session import Request, Session, open_session
from .tuning.halving import plan_final


@dataclass(frozen=True)
class Question:
    """What `clients` is asked for."""

    load: Load
    data: DataSet
    runs: int
    """Of each client."""
    clients: Sequence[str] = ()
    """Those to compare with the lean path; none: all that insert in the load's mode."""
    given: Collection[str] = ()
    """Names of the options that stood on the command line."""


def run_clients(question: Question, request: Request, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    session.disturbances = ()
    question = replace(question, data=session.complete(question.data, existing=False))
    ways = _choose_ways(question, session)
    made = _Clients(question, ClientComparison(ways=ways), session)
    made.check()
    lengths = [question.load] * (len(ways) * question.runs)
    return make_all(made, "clients", session, lengths, interrupts)


def _choose_ways(question: Question, session: Session) -> dict[str, str]:
    """Client -> how it inserts; ConfigError if there is nothing to compare the lean path with."""
    module, options = session.module, session.assume_options()
    mode = options.mode(question.load.batch)
    offered = module.CAPABILITIES.clients
    if not offered:
        raise ConfigError(
            f"module {module.name} has no official client to compare its lean path with"
        )
    for name in question.clients:
        if name not in offered:
            raise ConfigError(
                f"--client {name}: module {module.name} has no such client{did_you_mean(name, offered)}"
                f" (known: {', '.join(offered)})"
            )
    several = options.in_flight(question.load) > 1
    chosen = question.clients or [
        name
        for name, client in offered.items()
        if mode in client.ways and (client.in_flight or not several)
    ]
    if not chosen:
        raise ConfigError(
            f"module {module.name} has no client that inserts in mode {mode}"
            f"{' with several requests in flight' if several else ''}: change --batch, the insert mode"
            " or --in-flight"
        )
    ways = {name: offered[name].ways.get(mode, mode) for name in chosen}
    return {LEAN: f"the lean path ({mode})", **ways}


class _Clients(Making):
    """The runs made so far."""

    def __init__(self, question: Question, comparison: ClientComparison, session: Session) -> None:
        self._question = question
        self.prefill = question.data.prefill
        self._comparison = comparison
        self._session = session
        self._runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}

    @property
    def count(self) -> int:
        return len(self._runs)

    def check(self) -> None:
        """ConfigError if the module can't do it by one of the clients, before any run."""
        question, session = self._question, self._session
        sweep = Sweep(
            question.load, question.data, [question.load.workers], given=frozenset(question.given)
        )
        for client in self._comparison.ways:
            values = {**session.complete_values(), "client": client}
            options = session.module.options_model.model_validate(values)
            check_capabilities(sweep, session.module, options)

    def make(self, running: Running, display: Display) -> None:
        question = self._question
        running.executor.check_capacity([question.load.workers])
        names = list(self._comparison.ways)
        turns = plan_final(range(len(names)), question.runs)
        for place, which in enumerate(turns):
            label = f"{names[which]}, run {place // len(names) + 1} of {question.runs}"
            self._run(names[which], place // len(names), label, running, display)

    def _run(self, client: str, turn: int, label: str, running: Running, display: Display) -> None:
        question, number = self._question, len(self._runs) + 1
        display.begin(label)
        by_client = replace(running, values=running.values | {"client": client})
        data = share_devices(question.data, question.load.workers)
        # The same events for all of one turn.
        data = data.model_copy(update={"seed": (data.seed + turn) % 2**64})
        settings = by_client.make_settings(data, question.load)
        self._comparison.turns.append(ClientTurn(client=client, run=number))
        try:
            with by_client.series(f"run-{number:03d}", [settings]) as series:
                report = by_client.run(series, settings, display.update)
        except RunFailed as error:
            display.end("failed")
            if isinstance(error, RunGivenUp):
                self._keep(number, error.report)
            else:
                workers = question.load.workers
                failed = InsertRun(
                    workers=workers, run=number, fill_level=0, **describe_failure(error)
                )
                self._runs.append(failed)
            raise
        run = self._keep(number, report)
        rate = f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure"
        display.end(rate if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {rate}")

    def _keep(self, number: int, report: Report) -> InsertRun:
        run = report.insert
        assert run is not None
        run.run, run.phases_s = number, report.phases_s
        self._runs.append(run)
        self._environment = self._join(report.environment)
        return run

    def _join(self, latest: dict[str, Any]) -> dict[str, Any]:
        """The environment of all runs, with the packages of all clients."""
        joined = join_environments(self._environment, latest)
        before = self._environment.get("client", {}).get("packages", {})
        packages = before | joined["client"]["packages"]
        return {**joined, "client": {**joined["client"], "packages": packages}}

    def result(self, running: Running, complete: bool) -> Result:
        question, session = self._question, self._session
        options = {
            "workers": [question.load.workers],
            "runs": question.runs,
            **public_load(question.load),
            **public_data(question.data),
            "insert_mode": session.assume_options().mode(question.load.batch),
        }
        return running.make_result(
            "clients",
            session,
            options,
            self._environment,
            complete=complete,
            cost_per_hour=session.target.cost_per_hour,
            runs=self._runs,
            clients=self._comparison,
        )

    def show(self, result: Result) -> None:
        say(tabulate_clients(result).text(width=terminal_width()))
        lines = [*describe_clients(result), *summarize_notes(result, sys.stdout.isatty())]
        for line in ["", *lines]:
            say_prose(line)
