"""Calls on a socket that wait too long."""

from __future__ import annotations

import socket

import pytest

from simulator.modules.waiting import TIMEOUTS, limit_waits


def test_the_kernel_ends_what_waits_too_long() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        limit_waits(ours, 0.05)
        assert ours.gettimeout() is None
        with pytest.raises(TIMEOUTS):
            ours.recv(1)
        with pytest.raises(TIMEOUTS):
            ours.sendall(bytes(1 << 24))


def test_a_time_too_short_for_the_kernel_is_still_a_limit() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        limit_waits(ours, 1e-9)
        with pytest.raises(TIMEOUTS):
            ours.recv(1)
