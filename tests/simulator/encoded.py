"""What encoders are given in tests: events of every workload and awkward ones."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.contract import Load
from simulator.modules.base import Job
from simulator.testing.events import Awkward
from simulator.workloads import WORKLOADS
from simulator.workloads.base import Workload
from simulator.workloads.schema import EventBlock

each_kind = pytest.mark.parametrize("kind", [*WORKLOADS.values(), Awkward])


def make_events(kind: type[Workload], **load: Any) -> tuple[Workload, EventBlock, Job]:
    """A workload, 91 of its events from the midst of a worker's, and the job of this load."""
    workload = kind(device_spread=3)
    return workload, workload.block(1, 7, 91), Job(workload.schema, Load(**load))
