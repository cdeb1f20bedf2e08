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
from ..output import print_prose, say, terminal_width
from ..plan import Sweep, check_capabilities, public_data, public_load, share_devices
from ..render.clients import describe_clients, tabulate_clients
from ..render.notes import summarize_notes
from ..render.progress import Display
from ..results.model import ClientComparison, ClientTurn, Result
from ..signals import Interrupts
from .context import RunContext, describe_failure
from .experiment import Experiment, run_experiment
from .insert import join_environments
from .session import CommonOptions, Session, open_session
from .tuning.halving import plan_final


@dataclass(frozen=True)
class ClientsRequest:
    """What `clients` is asked for."""

    load: Load
    data: DataSet
    runs: int
    """Of each client."""
    clients: Sequence[str] = ()
    """Those to compare with the lean path; none: all that insert in the load's mode."""
    given: Collection[str] = ()
    """Names of the options that stood on the command line."""


def run_clients(wanted: ClientsRequest, request: CommonOptions, interrupts: Interrupts) -> int:
    """Make all runs; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    session.disturbances = ()
    wanted = replace(wanted, data=session.complete(wanted.data, existing=False))
    ways = _choose_ways(wanted, session)
    made = _ClientsExperiment(wanted, ClientComparison(ways=ways), session)
    made.check()
    lengths = [wanted.load] * (len(ways) * wanted.runs)
    return run_experiment(made, "clients", session, lengths, interrupts)


def _choose_ways(wanted: ClientsRequest, session: Session) -> dict[str, str]:
    """Client -> how it inserts; ConfigError if there is nothing to compare the lean path with."""
    module, options = session.module, session.assume_options()
    mode = options.mode(wanted.load.batch)
    offered = module.CAPABILITIES.clients
    if not offered:
        raise ConfigError(
            f"module {module.name} has no official client to compare its lean path with"
        )
    for name in wanted.clients:
        if name not in offered:
            raise ConfigError(
                f"--client {name}: module {module.name} has no such client{did_you_mean(name, offered)}"
                f" (known: {', '.join(offered)})"
            )
    several = options.in_flight(wanted.load) > 1
    chosen = wanted.clients or [
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


class _ClientsExperiment(Experiment):
    """The runs made so far."""

    def __init__(
        self, wanted: ClientsRequest, comparison: ClientComparison, session: Session
    ) -> None:
        self._wanted = wanted
        self.prefill = wanted.data.prefill
        self._comparison = comparison
        self._session = session
        self._runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}

    @property
    def count(self) -> int:
        return len(self._runs)

    def check(self) -> None:
        """ConfigError if the module can't do it by one of the clients, before any run."""
        wanted, session = self._wanted, self._session
        sweep = Sweep(
            wanted.load, wanted.data, [wanted.load.workers], given=frozenset(wanted.given)
        )
        for client in self._comparison.ways:
            values = {**session.complete_values(), "client": client}
            options = session.module.options_model.model_validate(values)
            check_capabilities(sweep, session.module, options)

    def make(self, context: RunContext, display: Display) -> None:
        wanted = self._wanted
        context.executor.check_capacity([wanted.load.workers])
        names = list(self._comparison.ways)
        turns = plan_final(range(len(names)), wanted.runs)
        for place, which in enumerate(turns):
            label = f"{names[which]}, run {place // len(names) + 1} of {wanted.runs}"
            self._run(names[which], place // len(names), label, context, display)

    def _run(
        self, client: str, turn: int, label: str, context: RunContext, display: Display
    ) -> None:
        wanted, number = self._wanted, len(self._runs) + 1
        display.begin(label)
        by_client = replace(context, values=context.values | {"client": client})
        data = share_devices(wanted.data, wanted.load.workers)
        # The same events for all of one turn.
        data = data.model_copy(update={"seed": (data.seed + turn) % 2**64})
        settings = by_client.make_settings(data, wanted.load)
        self._comparison.turns.append(ClientTurn(client=client, run=number))
        try:
            with by_client.series(f"run-{number:03d}", [settings]) as series:
                report = by_client.run(series, settings, display.update)
        except RunFailed as error:
            display.end("failed")
            if isinstance(error, RunGivenUp):
                self._keep(number, error.report)
            else:
                workers = wanted.load.workers
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

    def result(self, context: RunContext, complete: bool) -> Result:
        wanted, session = self._wanted, self._session
        options = {
            "workers": [wanted.load.workers],
            "runs": wanted.runs,
            **public_load(wanted.load),
            **public_data(wanted.data),
            "insert_mode": session.assume_options().mode(wanted.load.batch),
        }
        return context.make_result(
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
            print_prose(line)
