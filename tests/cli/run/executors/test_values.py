"""What the chart's values may be, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from cli.run.cluster import Place, merge_chart_values
from cli.run.executors.kubernetes import KubernetesExecutor, check_quantities
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts


@pytest.mark.parametrize(
    "amount", ["abc", "300MB", "1e400", "nan", "-1", "0", "", True, [1], {}, "1ki"]
)
@pytest.mark.parametrize(
    "place",
    ["resources: cpu", "collectorResources: memory", "requests: cpu", "collectorRequests: x"],
)
def test_what_is_no_quantity_is_refused(place: str, amount: object) -> None:
    key, name = place.split(": ")
    with pytest.raises(ConfigError, match=f"kubernetes: {place}: .* is no quantity: write"):
        check_quantities(merge_chart_values({key: {name: amount}}))


def test_what_is_a_quantity_is_taken() -> None:
    for amount in ("500m", "512Mi", 2, 0.5, "1e3", "300M", "2"):
        check_quantities(merge_chart_values({"resources": {"cpu": amount}, "databaseLink": amount}))
    with pytest.raises(ConfigError, match="databaseLink: '10 Gbit' is no quantity"):
        check_quantities(merge_chart_values({"databaseLink": "10 Gbit"}))
    with pytest.raises(ConfigError, match="resources: write quantities below it"):
        check_quantities(merge_chart_values({"resources": "500m"}))


@pytest.mark.parametrize(
    ("values", "patience_s"),
    [
        ({}, (10, 300)),
        # Who sets it, or lets pods queue, means them to wait.
        ({"scheduling_patience": "5m"}, (300, 300)),
        ({"scheduling_patience": "0s"}, (0, 0)),
        ({"schedulerName": "volcano"}, (300, 300)),
    ],
)
def test_how_long_pods_wait_for_a_node(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], patience_s: tuple[float, float]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    executor = KubernetesExecutor(Interrupts(), Place("bench"), values)
    assert executor._node_patience_s == patience_s
    with pytest.raises(ConfigError, match="scheduling_patience: 'soon'"):
        KubernetesExecutor(Interrupts(), Place("bench"), {"scheduling_patience": "soon"})
