"""The contract suite on the servers of entries.py."""

from __future__ import annotations

from simulator.testing.suite import collect_tests

globals().update(collect_tests())
