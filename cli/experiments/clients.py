"""`clients`: what official clients cost beside the lean path, in turns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from simulator.errors import did_you_mean
from simulator.modules.options import LEAN

from ..errors import ConfigError
from ..output import print_prose, say, terminal_width
from ..plan import PlannedRun, PlannedSeries, Request, check_capabilities, share_devices
from ..render.clients import describe_clients, tabulate_clients
from ..render.notes import summarize_notes
from ..results.model import ClientComparison, ClientTurn, Result
from .candidates import plan_final
from .experiment import Experiment, Plan
from .session import Session


@dataclass(frozen=True, kw_only=True)
class ClientsRequest(Request):
    """What `clients` is asked for; its runs are those of each client."""

    clients: Sequence[str] = ()
    """Those to compare with the lean path; none: all that insert in the load's mode."""


class ClientsExperiment(Experiment[ClientsRequest]):
    """The same events by each client in turns, on tables that are made anew."""

    command: ClassVar = "clients"

    def __init__(self, request: ClientsRequest, session: Session) -> None:
        super().__init__(request, session)
        self._comparison = ClientComparison(ways=_choose_ways(self.request, session))
        self.lengths = [request.load] * (len(self._comparison.ways) * request.runs)
        for client in self._comparison.ways:
            values = {**session.complete_values(), "client": client}
            options = session.module.options_model.model_validate(values)
            check_capabilities(self.request, session.module, options)

    def plan(self) -> Plan:
        request, names = self.request, list(self._comparison.ways)
        data = share_devices(request.data, request.load.workers)
        for place, which in enumerate(plan_final(range(len(names)), request.runs)):
            client, turn, number = names[which], place // len(names), place + 1
            # The same events for all of one turn.
            own = data.model_copy(update={"seed": (data.seed + turn) % 2**64})
            options = {**self.session.values, "client": client}
            label = f"{client}, run {turn + 1} of {request.runs}"
            self._comparison.turns.append(ClientTurn(client=client, run=number))
            run = PlannedRun(label, number, own, (request.load,), options)
            yield PlannedSeries(f"run-{number:03d}", [run])

    def list_options(self) -> dict[str, Any]:
        mode = self.session.assume_options().mode(self.request.load.batch)
        return self.request.list_options() | {"insert_mode": mode}

    def summarize(self) -> dict[str, Any]:
        return {"clients": self._comparison}

    def show(self, result: Result) -> None:
        say(tabulate_clients(result).text(width=terminal_width()))
        lines = [*describe_clients(result), *summarize_notes(result, sys.stdout.isatty())]
        for line in ["", *lines]:
            print_prose(line)


def _choose_ways(request: ClientsRequest, session: Session) -> dict[str, str]:
    """Client -> how it inserts; ConfigError if there is nothing to compare the lean path with."""
    module, options = session.module, session.assume_options()
    mode = options.mode(request.load.batch)
    offered = module.CAPABILITIES.clients
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
