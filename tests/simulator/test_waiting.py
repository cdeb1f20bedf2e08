"""Calls on a socket that wait too long."""

from __future__ import annotations

import resource
import socket
import sys
import threading
import time

import pytest

from simulator.modules.waiting import TIMEOUTS, Receiver, limit_waits

_REQUESTS = 200


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


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_receiver_waits_as_long_as_it_may(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind("" if family is socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        with socket.socket(family) as ours:
            ours.connect(listener.getsockname())
            theirs, _ = listener.accept()
            with theirs:
                receiver = Receiver(ours)
                receiver.limit(0.05)
                with pytest.raises(TIMEOUTS):
                    receiver.read(10)
                threading.Timer(0.02, theirs.sendall, [b"late"]).start()
                receiver.limit(10.0)
                assert receiver.read(10) == b"late"


@pytest.mark.skipif(sys.platform != "linux", reason="wakes are counted as Linux does")
def test_a_thread_that_waits_for_a_local_socket_is_woken_once_for_each_answer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        receiver = Receiver(ours)
        receiver.limit(10.0)

        def answer() -> None:
            for _ in range(_REQUESTS):
                theirs.recv(10)
                # Long enough for a thread to run that this has woken.
                time.sleep(0.001)
                theirs.sendall(b"answer")

        server = threading.Thread(target=answer)
        server.start()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for _ in range(_REQUESTS):
            ours.sendall(b"request")
            receiver.read(10)
        wakes = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        server.join()
    assert wakes < 1.5 * _REQUESTS
