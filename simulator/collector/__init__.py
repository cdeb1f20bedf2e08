"""The collector: prepares the database, holds the barrier, verifies, merges, serves one report.

`run` is the course of a run; `barrier` knows which workers are ready or silent, `status` how far the run is;
`report` counts what is stored, `merge` computes the figures, `verdicts` finds what limited them; `http` is
the interface.
"""

from __future__ import annotations

from .http import listen, run_collector

__all__ = ["listen", "run_collector"]
