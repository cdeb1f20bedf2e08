"""`clients`: what official clients cost compared with the lean path, in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from simulator.contract import Load, Role
from simulator.errors import did_you_mean
from simulator.modules.capabilities import Client
from simulator.modules.options import LEAN

from ...plan.planning import (
    PlannedRun,
    PlannedSeries,
    check_capabilities,
    check_query,
    share_devices,
)
from ...plan.requests import ClientsRequest
from ...results.model import ClientComparison, ClientTurn
from ...system.errors import ConfigError
from .experiment import Experiment, Plan
from .session import Session
from .tuning import plan_final


class ClientsExperiment(Experiment[ClientsRequest]):
    """Each client in turns inserts the same events into new tables, or runs the same queries on events that
    are inserted once."""

    @cached_property
    def _comparison(self) -> ClientComparison:
        """The clients to compare, and the turns so far. ConfigError if there is nothing to compare."""
        asks = self.request.readers is not None
        choose = _choose_asking if asks else _choose_ways
        return ClientComparison(ways=choose(self.request, self.session), asks=asks)

    @cached_property
    def lengths(self) -> Sequence[Load]:
        request, compared = self.request, self._comparison
        runs = len(compared.ways) * request.runs + compared.asks
        return [request.readers or request.load] * runs

    def check(self) -> None:
        super().check()
        request, session = self.request, self.session
        for client in self._comparison.ways:
            values = {**session.complete_values(), "client": client}
            options = session.module.options_model.model_validate(values)
            if client == LEAN or request.readers is None:
                check_capabilities(request, session.module, options)
            if request.readers is not None:
                data = share_devices(request.data, request.load.workers)
                # A Secret of the cluster may hold what a client needs in addition for queries.
                settings = options if session.options is not None else None
                check_query(request.readers, data, session.module, settings)

    def plan(self) -> Plan:
        readers = self.request.readers
        data = share_devices(self.request.data, self.request.load.workers)
        if readers is None:
            for planned, turn in self._plan_turns((self.request.load,)):
                # All clients of a turn insert the same events.
                own = data.model_copy(update={"seed": (data.seed + turn) % 2**64})
                yield _make_series(replace(planned, data=own))
            return
        # The first run that queries is slow, whichever client it uses, so that run belongs to no client.
        fill = self.request.load.model_copy(update={"role": Role.FILL})
        options = {**self.session.values, "client": LEAN}
        yield _make_series(
            PlannedRun("loading", 1, data, (fill, readers), options, loads_by_prefill=True)
        )
        stored = data.model_copy(update={"prefill": 0, "clean": False})
        for planned, _ in self._plan_turns((readers,), first=2):
            yield _make_series(replace(planned, data=stored))

    def _plan_turns(
        self, loads: tuple[Load, ...], first: int = 1
    ) -> Iterator[tuple[PlannedRun, int]]:
        """Each run, numbered from `first`, with the number of its turn."""
        request, names = self.request, list(self._comparison.ways)
        for place, which in enumerate(plan_final(range(len(names)), request.runs)):
            client, turn, number = names[which], place // len(names), place + first
            options = {**self.session.values, "client": client}
            label = f"{client}, run {turn + 1} of {request.runs}"
            self._comparison.turns.append(ClientTurn(client=client, run=number))
            yield PlannedRun(label, number, request.data, loads, options), turn

    def list_options(self) -> dict[str, Any]:
        if self.request.readers is not None:
            return self.request.list_options()
        mode = self.session.assume_options().mode(self.request.load)
        return self.request.list_options() | {"insert_mode": mode}

    def summarize(self) -> dict[str, Any]:
        return {"clients": self._comparison}


def _make_series(run: PlannedRun) -> PlannedSeries:
    return PlannedSeries(f"run-{run.run:03d}", [run])


def _list_offered(request: ClientsRequest, session: Session) -> Mapping[str, Client]:
    """The module's clients. ConfigError if it has none, or lacks one that was asked for."""
    module = session.module
    offered = module.official_clients()
    if not offered:
        raise ConfigError(
            f"module {module.name} has no official client to compare its lean path with"
        )
    for name in request.clients:
        if name not in offered:
            raise ConfigError(
                f"--client {name}: module {module.name} has no such client{did_you_mean(name, offered)}"
                f" (known: {', '.join(offered)})"
            )
    return offered


def _choose_asking(request: ClientsRequest, session: Session) -> dict[str, str]:
    """Client -> the package it queries with. ConfigError if there is nothing to compare the lean path
    with."""
    offered = _list_offered(request, session)
    asking = {name: client.packages[0] for name, client in offered.items() if client.asker}
    chosen = request.clients or list(asking) or list(offered)
    for name in chosen:
        if name not in asking:
            hint = f" (those that can: {', '.join(asking)})" if asking else ""
            raise ConfigError(
                f"--queries: client {name} of module {session.module.name} can't query{hint}"
            )
    return {LEAN: "the lean path", **{name: asking[name] for name in chosen}}


def _choose_ways(request: ClientsRequest, session: Session) -> dict[str, str]:
    """Client -> how it inserts. ConfigError if there is nothing to compare the lean path with."""
    module, options = session.module, session.assume_options()
    mode = options.mode(request.load)
    offered = _list_offered(request, session)
    if not any(client.ways for client in offered.values()):
        raise ConfigError(
            f"module {module.name} has no official client that inserts: compare those that query, with"
            " --queries"
        )
    several = options.in_flight(request.load) > 1
    chosen = request.clients or [
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
