"""Requests that get lost on their way, which every proxy of the tests can bring about."""

from __future__ import annotations

from simulator.testing.server import Fault

ANSWER_LOST = Fault(
    "answer lost", {"connection_lost": 1},
    lambda server, job: server.fated("drop answer"), thorough=True,
)  # fmt: skip
REQUEST_LOST = Fault(
    "request lost", {"connection_lost": 1}, lambda server, job: server.fated("drop request")
)
