"""The collector: prepares the database, holds the barrier, verifies, merges, serves one report.

`run` is the course of a run, `barrier` who is ready and who is silent, `status` how far it is,
`report` what is counted, `merge` the figures, `verdicts` whose limit they show, `http` the interface.
"""

from __future__ import annotations

from .http import listen, run_collector

__all__ = ["listen", "run_collector"]
