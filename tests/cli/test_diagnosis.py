"""What the doctor says before a run."""

from __future__ import annotations

import pytest

from cli.run.diagnosis import judge_machine
from simulator.machine import Reading


@pytest.mark.parametrize(
    ("load", "text", "busy"),
    [
        (0.94, "2 CPUs, load average 0.9", False),
        (1.0, "2 CPUs, load average 1.0", True),
        (None, "2 CPUs", False),
    ],
)
def test_a_busy_machine_is_said_and_is_no_failure(
    load: float | None, text: str, busy: bool
) -> None:
    finding = judge_machine(Reading(2, load, None))
    assert (finding.ok, finding.text, finding.remedy != "") == (True, text, busy)
