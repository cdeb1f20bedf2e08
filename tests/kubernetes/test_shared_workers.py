"""Workers that two executors share: a namespace of the cluster each, as if it were a cluster of its own."""

from __future__ import annotations

import pytest

from .cluster import RESTRICTED, Cluster
from .tool import HALF, HOLE, WORKER, ClusterTool

pytestmark = pytest.mark.cluster

PORT = 30517


def find_node_address(cluster: Cluster) -> str:
    addresses = cluster.core.list_node().items[0].status.addresses
    return str(next(address.address for address in addresses if address.type == "InternalIP"))


def test_workers_of_two_places_make_one_result(tool: ClusterTool, cluster: Cluster) -> None:
    with cluster.namespace(RESTRICTED) as other:
        tool.document["executors"] = {
            "east": {"kubernetes": {"service": {"type": "NodePort", "nodePort": PORT}}},
            "west": {"namespace": other.name},
        }
        tool.document["targets"][HOLE] |= {
            "executors": ["east", "west"],
            "collector_address": f"http://{find_node_address(cluster)}:{PORT}",
        }
        tool.configure(resources={**WORKER, "cpu": HALF})
        tool.run_here(
            "insert", "-t", HOLE, "--workers", 3, "--runs", 2, "--duration", "3s", "--json", tool.json,
        ).ok()  # fmt: skip
        doctor = tool.run_here("doctor", "-t", HOLE).ok()
        other.check_nothing_left()
    assert doctor.out.count("a worker connected to the collector") == 2
    assert "database: answers collector and worker" in doctor.out
    result = tool._read(tool.json)
    for run in result["runs"]:
        (group,) = run["groups"]
        assert [span["worker"] for span in group["per_worker"]] == [0, 1, 2]
    where = result["environment"]["executors"]
    assert (where["east"]["workers"], where["west"]["workers"]) == (2, 1)
    assert len(result["environment"]["kubernetes"]["placement"]) == 3
    assert where["west"]["kubernetes"]["namespace"] == other.name
    (pod,) = where["west"]["kubernetes"]["placement"]
    assert (tool.folder() / "logs" / "workers-03" / "west" / f"{pod}.log").is_file()


def test_a_worker_of_another_place_that_cannot_come(tool: ClusterTool, cluster: Cluster) -> None:
    """The run ends with the reason, and nothing is left in either place."""
    with cluster.namespace(RESTRICTED) as other:
        tool.document["executors"] = {
            "east": {},
            "west": {"namespace": other.name, "kubernetes": {"image": {"name": "not-there"}}},
        }
        tool.document["targets"][HOLE] |= {
            "executors": ["east", "west"],
            "collector_address": f"http://{find_node_address(cluster)}:{PORT}",
        }
        tool.configure(resources={**WORKER, "cpu": HALF})
        done = tool.run_here(
            "insert", "-t", HOLE, "--workers", 2, "--runs", 1, "--num-inserts", 100
        )
        text = done.error(1)
        assert "executor west: pod iotb-" in text
        assert "ErrImagePull" in text or "ImagePullBackOff" in text
        other.check_nothing_left()
