"""How many requests each worker has in flight: decided in one place, whatever an option is called."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, ClassVar

import pytest

from simulator.contract import Load, Role
from simulator.errors import OptionError
from simulator.modules import load_module, module_names
from simulator.modules.base import AnyModule, Capabilities, Client, Job, Support
from simulator.modules.blackhole import Blackhole, BlackholeOptions
from simulator.modules.options import LEAN, Options, parse_options
from simulator.modules.sending import Completion
from simulator.workloads.temperature import Temperature

OWN_NAMES = {
    "arangodb": "max_in_flight",
    "azure_data_explorer": "max_in_flight",
    "blackhole": "max_in_flight",
    "cassandra": "max_sync_calls",
    "clickhouse": "max_in_flight",
    "cratedb": "concurrent_requests",
    "elasticsearch": "max_in_flight",
    "influxdb": "max_in_flight",
    "iotdb": "max_in_flight",
    "questdb": "max_in_flight",
    "victoriametrics": "max_in_flight",
}


def job(**load: Any) -> Job:
    return Job(Temperature.schema, Load(**load))


def blackhole(load: dict[str, Any], **values: Any) -> Blackhole:
    return Blackhole(parse_options(BlackholeOptions, values, str), job(**load))


@pytest.mark.parametrize("name", module_names())
def test_the_options_that_stand_for_it(name: str) -> None:
    model = load_module(name).options_model
    assert OWN_NAMES.get(name) == model.IN_FLIGHT
    names = set(OWN_NAMES.values()) & set(model.model_fields)
    assert names == ({model.IN_FLIGHT} if model.IN_FLIGHT else set())
    if model.IN_FLIGHT:
        assert "--in-flight" in (model.model_fields[model.IN_FLIGHT].description or "")


@pytest.mark.parametrize(
    ("in_flight", "values", "expected"),
    [
        (None, {}, 1),
        (None, {"max_in_flight": "4"}, 4),
        (8, {}, 8),
        (8, {"max_in_flight": "8"}, 8),
        (1, {}, 1),
    ],
)
@pytest.mark.parametrize("batch", [0, 10])
def test_what_is_asked_for_is_what_the_writer_holds(
    in_flight: int | None, values: dict[str, str], expected: int, batch: int
) -> None:
    module = blackhole({"in_flight": in_flight, "batch": batch}, **values)
    assert module.writer().max_in_flight == expected
    assert module.for_prefill().writer().max_in_flight == expected


@pytest.mark.parametrize(("in_flight", "own"), [(8, 4), (1, 4), (8, 1)])
def test_two_numbers_are_one_too_many(in_flight: int, own: int) -> None:
    with pytest.raises(OptionError) as refused:
        blackhole({"in_flight": in_flight}, max_in_flight=own)
    assert str(refused.value) == (
        f"--in-flight {in_flight} and the option max_in_flight={own} contradict each other: choose one"
    )


def test_the_limit_of_a_modules_own_option_holds_for_both_names() -> None:
    with pytest.raises(OptionError, match=r"max_in_flight.* less than or equal to 1024"):
        blackhole({}, max_in_flight=1025)
    with pytest.raises(
        OptionError, match="--in-flight may be 1024 at most with this module, not 1025"
    ):
        blackhole({"in_flight": 1025})
    assert blackhole({"in_flight": 1024}).writer().max_in_flight == 1024


def test_a_black_hole_holds_requests_for_as_long_as_it_says() -> None:
    """Each request by itself, in one thread: the schedule's precision is measured with this."""
    endless = blackhole({"in_flight": 8}, delay_ms=3_600_000).writer()
    [request, *_] = endless.encoder.encode(Temperature().block(0, 0, 1))
    endless.submit(request)
    assert not endless.poll(0.002)
    writer = blackhole({"in_flight": 8}, delay_ms=20).writer()
    before = set(threading.enumerate())
    requests = writer.encoder.encode(Temperature().block(0, 0, 3))
    for request in requests:
        request.sent_s = time.perf_counter()
        writer.submit(request)
        time.sleep(0.002)
    ended: list[Completion] = []
    while len(ended) < 3:
        ended += writer.poll(math.inf)
    assert [completion.request for completion in ended] == requests
    assert [completion.done for completion in ended] == [1, 1, 1]
    for completion in ended:
        assert completion.arrived_s >= completion.request.sent_s + 0.02
    assert set(threading.enumerate()) <= before
    writer.submit(request)
    writer.close()
    assert not writer.poll(0.03)


class OneByOne(Blackhole):
    """A database that takes batches one after the other."""

    name = "one-by-one"
    CAPABILITIES = Capabilities(
        insert_modes={"batch": Support.FULL, "single": Support.FULL},
        primary_keys={},
        queries={},
        indices=Support.UNSUPPORTED,
        column_types=(),
        in_flight={"batch": Support.UNSUPPORTED, "single": Support.FULL},
    )


def test_a_mode_that_holds_one_request_says_so() -> None:
    options = parse_options(BlackholeOptions, {}, str)
    with pytest.raises(OptionError) as refused:
        OneByOne(options, job(in_flight=8, batch=10))
    assert str(refused.value) == (
        "module one-by-one holds one request in flight in insert mode batch, not 8:"
        " use more workers instead"
    )
    OneByOne(options, job(in_flight=1, batch=10))
    OneByOne(options, job(in_flight=8))


def test_readers_have_questions_in_flight_as_their_asker_can() -> None:
    """Whatever an insert mode holds, and whatever the target says of its writers."""
    options = parse_options(BlackholeOptions, {"max_in_flight": 16}, str)
    with pytest.raises(OptionError) as refused:
        OneByOne(options, job(in_flight=8, role=Role.READ))
    assert str(refused.value) == (
        "module one-by-one runs one query at a time, not 8: use more readers instead"
    )
    OneByOne(options, job(batch=10, role=Role.READ))

    class Several(OneByOne):
        CLIENTS: ClassVar = {LEAN: Client(asker="x:y")}

    Several(options, job(in_flight=8, batch=10, role=Role.READ))


def test_a_client_that_asks_nothing_is_no_readers_client() -> None:
    class Sold(OneByOne):
        name = "sold"
        CLIENTS: ClassVar = {
            LEAN: Client("x:y"),
            "official": Client("x:y", ways={"single": "insert"}),
            "other": Client(asker="x:y"),
        }

    def build(client: str, **load: Any) -> Sold:
        return Sold(parse_options(BlackholeOptions, {"client": client}, str), job(**load))

    with pytest.raises(OptionError) as refused:
        build("official", role=Role.READ)
    assert str(refused.value) == (
        "client=official can't query in module sold: use client=lean for that"
    )
    build("official")
    # A client that only asks needs no way to insert.
    build("other", role=Role.READ)
    with pytest.raises(OptionError, match="client=other can't insert in mode single"):
        build("other")


def test_a_module_that_says_nothing_holds_one() -> None:
    """Its writer may not be fit to be used by several threads."""
    silent: dict[str, Any] = {"in_flight": {}}

    class Silent(OneByOne):
        CAPABILITIES = Capabilities(**(vars(OneByOne.CAPABILITIES) | silent))

    kind: type[AnyModule] = Silent
    with pytest.raises(OptionError, match="holds one request in flight in insert mode single"):
        kind(parse_options(BlackholeOptions, {}, str), job(in_flight=2))
    assert Options().in_flight(Load(in_flight=2)) == 2
