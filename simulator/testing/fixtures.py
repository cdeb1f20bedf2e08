"""Runs each test for every server under test and for everything that its module supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations, islice, product
from typing import Any

import pytest

from ..modules import load_module
from ..modules.base import Encoding
from .server import (
    Entry,
    Fault,
    ServerUnderTest,
    holds_several,
    key_modes,
    table_modes,
    two_key_modes,
    workloads_of,
)

StartServer = Callable[[Entry, pytest.FixtureRequest], ServerUnderTest]


def find_pipelined(entry: Entry) -> Sequence[Encoding]:
    """The encodings that allow several requests in flight; only one for a thinned entry."""
    module = load_module(entry.module)
    encodings = [encoding for encoding in module.ENCODINGS if holds_several(module, encoding)]
    return encodings[:1] if entry.thinned else encodings


def find_official(entry: Entry) -> Sequence[tuple[str, Encoding]]:
    """Each official client with each way of inserting, in one encoding of it; only one way for a thinned
    entry."""
    module = load_module(entry.module)
    by_mode = {encoding.label.split()[0]: encoding for encoding in reversed(module.ENCODINGS)}
    return [
        (name, by_mode[mode])
        for name, client in module.official_clients().items()
        for mode in list(client.ways)[: 1 if entry.thinned else None]
    ]


def find_official_clients(entry: Entry) -> Sequence[tuple[str, Encoding]]:
    """Each official client with its first way of inserting."""
    first: dict[str, Encoding] = {}
    for name, encoding in find_official(entry):
        first.setdefault(name, encoding)
    return list(first.items())


def find_official_in_flight(entry: Entry) -> Sequence[tuple[str, Encoding]]:
    """The same for those that allow a worker several requests in flight."""
    clients = load_module(entry.module).CLIENTS
    return [way for way in find_official_clients(entry) if clients[way[0]].in_flight]


def find_official_askers(entry: Entry) -> Sequence[str]:
    """The official clients that run queries."""
    clients = load_module(entry.module).official_clients()
    return [name for name, client in clients.items() if client.asker]


def find_strikes(entry: Entry) -> Sequence[tuple[Fault, Encoding]]:
    """Each fault that isn't thorough, in each encoding that could make a difference to it."""
    first, *more_encodings = load_module(entry.module).ENCODINGS
    faults = [fault for fault in entry.adapter.FAULTS if not fault.thorough]
    wide = [fault for fault in faults if not fault.once][: 1 if entry.thinned else None]
    return [
        *((fault, first) for fault in faults),
        *((fault, encoding) for encoding in more_encodings for fault in wide),
    ]


# Parameter of a test -> its values for an entry. A test with a parameter that has no values for a module does
# not run for it.
AXES: dict[str, Callable[[Entry], Sequence[Any]]] = {
    "encoding": lambda entry: load_module(entry.module).ENCODINGS,
    "pipelined": find_pipelined,
    "official": find_official,
    "official_client": find_official_clients,
    "official_in_flight": find_official_in_flight,
    "official_asker": find_official_askers,
    "primary_key": lambda entry: key_modes(load_module(entry.module)),
    "either_key": lambda entry: two_key_modes(load_module(entry.module)),
    "tables": lambda entry: table_modes(load_module(entry.module)),
    "workload_name": lambda entry: workloads_of(load_module(entry.module)),
    "strike": find_strikes,
    "fault_in_flight": lambda entry: entry.adapter.faults_in_flight(),
    "thorough_fault": lambda entry: [fault for fault in entry.adapter.FAULTS if fault.thorough],
}


def parametrize(metafunc: pytest.Metafunc, entries: Sequence[Entry]) -> None:
    """Run a test for each entry (of the module that a mark names), and for each value of each axis among its
    parameters."""
    if "server" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("module")
    axes = [name for name in AXES if name in metafunc.fixturenames]
    cases = [
        pytest.param(entry, *values, id="-".join([entry.name, *map(_label, values)]))
        for entry in entries
        if mark is None or entry.module in mark.args
        # One case is enough for a test that is skipped because there is no server.
        for values in islice(
            _combine([AXES[name](entry) for name in axes], entry.thinned),
            None if entry.is_there else 1,
        )
    ]
    metafunc.parametrize(["server", *axes], cases, indirect=["server"])


def _combine(axes: Sequence[Sequence[Any]], thinned: bool) -> Iterator[tuple[Any, ...]]:
    """Combinations of the axes' values in which any two values of different axes occur together. `thinned`:
    only those in which at most one value isn't the first of its axis."""
    places = list(product(*(range(len(axis)) for axis in axes)))
    if thinned:
        places = [combination for combination in places if sum(map(bool, combination)) <= 1]
    elif len(axes) > 2:
        places = _cover_pairs(places)
    for combination in places:
        yield tuple(axis[place] for axis, place in zip(axes, combination, strict=True))


def _cover_pairs(places: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A few of these combinations that cover all their pairs: a greedy choice."""
    pairs = {combination: set(combinations(enumerate(combination), 2)) for combination in places}
    uncovered = set().union(*pairs.values())
    chosen = []
    while uncovered:
        best = max(places, key=lambda combination: len(uncovered & pairs[combination]))
        uncovered -= pairs[best]
        chosen.append(best)
    return sorted(chosen)


def _label(value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(_label, value))
    if isinstance(value, Encoding):
        return value.label.replace(" ", "_")
    return str(value).replace(" ", "_")


@contextmanager
def run_servers() -> Iterator[StartServer]:
    """Starts requested servers, each once; all end with the context."""
    running: dict[str, ServerUnderTest] = {}
    with ExitStack() as stack:

        def start(entry: Entry, request: pytest.FixtureRequest) -> ServerUnderTest:
            if entry.name not in running:
                started = entry.start(request, entry.values())
                running[entry.name] = stack.enter_context(started)
            return running[entry.name]

        yield start


@pytest.fixture(scope="session")
def servers() -> Iterator[StartServer]:
    """The running servers."""
    with run_servers() as start:
        yield start


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: StartServer) -> ServerUnderTest:
    """A server under test, empty."""
    running = servers(request.param, request)
    running.clear()
    return running
