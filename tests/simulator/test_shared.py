"""What modules have in common: options, dealing events to tables, waiting for connections."""

from __future__ import annotations

import select
import socket
import time
from typing import ClassVar

import pytest
from pydantic import ValidationError

from simulator.contract import Load
from simulator.errors import OptionError
from simulator.modules.kit.options import EndpointOptions, LoginOptions, check_url
from simulator.modules.options import InsertMode, choose_mode
from simulator.modules.sending import deal_block, deal_in_turn, deal_rows, number_tables
from simulator.modules.waiting import Poll
from simulator.workloads.temperature import Temperature


class NodeOptions(EndpointOptions, LoginOptions):
    DEFAULT_PORT: ClassVar[int] = 77
    EXAMPLE_URL: ClassVar[str] = "http://db.example:77"


@pytest.mark.parametrize(
    ("asked", "batch", "expected"),
    [
        (None, 0, InsertMode.SINGLE),
        (None, 5, InsertMode.COPY),
        (InsertMode.SINGLE, 0, InsertMode.SINGLE),
        (InsertMode.BULK, 5, InsertMode.BULK),
    ],
)
def test_a_mode_that_fits(asked: InsertMode | None, batch: int, expected: InsertMode) -> None:
    assert (
        choose_mode("insert_mode", asked, Load(batch=batch), InsertMode.SINGLE, InsertMode.COPY)
        is expected
    )


@pytest.mark.parametrize(
    ("asked", "batch", "text"),
    [
        (InsertMode.SINGLE, 5, "how=single sends one event per request: leave --batch out"),
        (InsertMode.BULK, 0, "how=bulk needs --batch N"),
    ],
)
def test_a_mode_that_does_not_fit(asked: InsertMode, batch: int, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        choose_mode("how", asked, Load(batch=batch), InsertMode.SINGLE, InsertMode.COPY)


@pytest.mark.parametrize(
    "url",
    ["db:77", "ftp://db", "http://", "http://db:0", "http://db:99999", "http://db/?x=1",
     "http://db/#x", "https://db;Fed=True", "http://me:hush@db"],
)  # fmt: skip
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        check_url(url, "http://db.example", "user and password")
    assert "hush" not in str(refused.value)


def test_urls_are_those_of_servers() -> None:
    for url in ("http://db", "https://db.example:77/path", "http://[::1]:77", "http://10.0.0.1"):
        assert check_url(url, "http://db.example", "user and password") == url
    with pytest.raises(ValueError, match=r"must be a URL like http://db\.example"):
        check_url("http://db/path", "http://db.example", "user and password", path=False)


def test_nodes_are_named_by_host_and_port() -> None:
    options = NodeOptions.model_validate({"endpoint": "http://one, https://two:99/path"})
    assert options.server == "one:77, two:99"
    assert options.make_tls_context() is not None
    assert NodeOptions.model_validate({"endpoint": "http://one"}).make_tls_context() is None


def test_what_is_not_shown_is_a_secret() -> None:
    values = {"endpoint": "http://one", "username": "me", "password": "a-s3cret"}
    options = NodeOptions.model_validate(values)
    assert options.secrets() == ["a-s3cret"]
    assert options.public()["password"] == "***"
    assert "a-s3cret" not in f"{options!r}"
    nobody = NodeOptions.model_validate({"endpoint": "http://one"})
    assert nobody.secrets() == []
    assert "password" not in nobody.public()


@pytest.mark.parametrize("half", [{"username": "me"}, {"password": "hush"}])
def test_a_login_is_whole(half: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="username and password go together"):
        LoginOptions.model_validate(half)


@pytest.mark.parametrize("tables", [1, 4])
@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("count", [0, 1, 3, 30])
def test_event_i_goes_to_table_i_modulo_their_number(tables: int, first: int, count: int) -> None:
    block = Temperature(device_spread=3).block(1, first, count)
    expected = [(first + row) % tables for row in range(count)]
    assert deal_in_turn(block, range(tables)) == expected
    assert number_tables(block, tables).tolist() == expected

    shares = deal_rows(block, 0, count, tables)
    assert [share.table for share in shares] == expected[:tables]
    assert sorted(row for share in shares for row in share.rows) == list(range(count))
    assert all(expected[row] == share.table for share in shares for row in share.rows)

    dealt = deal_block(block, tables)
    assert [share for share, _ in dealt] == shares
    for share, part in dealt:
        times = block.columns["timestamp"]
        assert part.columns["timestamp"].tolist() == [times[row] for row in share.rows]


def test_rows_of_one_request_are_those_of_its_block() -> None:
    block = Temperature().block(0, 5, 20)
    assert deal_rows(block, 10, 13, 4) == [
        (3, range(10, 13, 4)),
        (0, range(11, 13, 4)),
        (1, range(12, 13, 4)),
    ]


# --- polling --------------------------------------------------------------------------------------


def test_a_wait_for_connections_ends_to_the_microsecond() -> None:
    """poll itself knows whole milliseconds: the next request would leave that late."""
    near, far = socket.socketpair()
    with near, far:
        poll = Poll()
        poll.register(near.fileno(), select.POLLIN)
        waits = []
        for _ in range(50):
            begin = time.perf_counter()
            assert not poll.wait(0.0003)
            waits.append(time.perf_counter() - begin)
        # A busy machine may hold up most of them.
        assert 0.0003 <= min(waits) < 0.0009
        begin = time.perf_counter()
        while (left_s := 0.0104 - (time.perf_counter() - begin)) > 0:
            assert not poll.wait(left_s)
        far.send(b"x")
        for timeout_s in (0.0, 0.0003, 5.0):
            assert poll.wait(timeout_s) == [(near.fileno(), select.POLLIN)]
            assert poll.wait(timeout_s - 1) == [(near.fileno(), select.POLLIN)]
        poll.register(near.fileno(), select.POLLOUT)
        for timeout_s in (0.0, 0.0003, 5.0):
            assert poll.wait(timeout_s) == [(near.fileno(), select.POLLOUT)]
        poll.unregister(near.fileno())
        assert not poll.wait(0.0003)
