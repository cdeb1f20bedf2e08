"""What kubelets and the metrics API say, as they say it."""

from __future__ import annotations

from typing import Any

import pytest

from cli.run.probes.pods import (
    Kind,
    read_cadvisor_metrics,
    read_pod_metrics,
    read_resource_metrics,
    read_summary_network,
    read_time,
)

DB = ("databases", "db-0")

RESOURCE = """
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="pg",namespace="databases",pod="db-0"} 1.271431718 1795352239235
container_cpu_usage_seconds_total{container="new",namespace="databases",pod="db-0"} 0.5 1795352239236
container_memory_working_set_bytes{container="pg",namespace="databases",pod="db-0"} 4.6e+07 1795352239235
container_start_time_seconds{container="pg",namespace="databases",pod="db-0"} 1.7953521246674056e+09
node_cpu_usage_seconds_total 59359.192460885 1795352229955
pod_cpu_usage_seconds_total{namespace="databases",pod="db-0"} 1.302091293 1795352236424
"""


def test_cpu_and_memory_of_containers() -> None:
    (cpu, new), (memory,) = read_resource_metrics(RESOURCE)
    assert (cpu.kind, cpu.pod, cpu.owner) == (Kind.CPU, DB, "pg")
    assert (cpu.at, cpu.value) == (1795352239.235, 1.271431718)
    assert cpu.began_at == pytest.approx(1795352124.667, abs=0.001)
    assert new.began_at is None
    assert (memory.pod, memory.owner, memory.at, memory.size) == (
        DB, "pg", 1795352239.235, 46000000,
    )  # fmt: skip
    assert read_resource_metrics("") == ([], [])


def line(name: str, value: float, stamp: str = " 2000", **labels: str) -> str:
    listed = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{listed}}} {value}{stamp}"


def test_disk_and_network_of_pods() -> None:
    wrote, received = "container_fs_writes_bytes_total", "container_network_receive_bytes_total"
    db = {"namespace": "databases", "pod": "db-0"}
    text = "\n".join(
        [
            "machine_cpu_cores{boot_id=\"b\"} 8",
            # What lies on a disk would be counted twice; another disk wouldn't.
            line(wrote, 100, container="pg", device="/dev/sda", id="/a", **db),
            line(wrote, 20, container="pg", device="/dev/nvme1n1", id="/a", **db),
            line(wrote, 100, container="pg", device="/dev/dm-0", id="/a", **db),
            # The pod's own cgroup and the node's.
            line(wrote, 120, container="", device="/dev/sda", id="/pod", **db),
            line(wrote, 999, container="", device="/dev/sda", id="/", namespace="", pod=""),
            # In a container that has nothing else it is all that is known.
            line(wrote, 7, container="side", device="/dev/dm-0", id="/b", **db),
            line(wrote, 8, stamp="", container="none", device="/dev/sda", id="/c", **db),
            line(received, 5000, interface="eth0", id="/pod", container="POD", **db),
            line(received, 6000, interface="net1", id="/pod", container="POD", **db),
            line(received, 1e9, interface="eth0", id="/", namespace="", pod=""),
        ]
    )  # fmt: skip
    counts, cores = read_cadvisor_metrics(text)
    assert cores == 8
    values = {(count.kind, count.owner): count.value for count in counts}
    assert values == {
        (Kind.WRITTEN, "pg /a"): 120,
        (Kind.WRITTEN, "side /b"): 7,
        (Kind.RECEIVED, "/pod eth0"): 5000,
        (Kind.RECEIVED, "/pod net1"): 6000,
    }
    assert {(count.pod, count.at) for count in counts} == {(DB, 2.0)}
    assert read_cadvisor_metrics("# nothing\n") == ([], None)


def test_network_by_the_summary() -> None:
    reference = {"namespace": "databases", "name": "db-0", "uid": "u"}
    eth0 = {"name": "eth0", "rxBytes": 10, "txBytes": 20}
    network: dict[str, Any] = {"time": "2026-11-22T12:54:16Z", **eth0}
    both = {**network, "interfaces": [eth0, {"name": "net1", "rxBytes": 1}]}
    counts = read_summary_network({"pods": [{"podRef": reference, "network": both}]})
    assert [(count.kind, count.owner, count.value) for count in counts] == [
        (Kind.RECEIVED, "u eth0", 10), (Kind.SENT, "u eth0", 20), (Kind.RECEIVED, "u net1", 1),
    ]  # fmt: skip
    assert counts[0].at == read_time("2026-11-22T12:54:16Z")
    assert len(read_summary_network({"pods": [{"podRef": reference, "network": network}]})) == 2
    # On the node's network, or by a kubelet that doesn't know.
    assert read_summary_network({"pods": [{"podRef": reference}]}) == []
    assert read_summary_network({"node": {}}) == []


def test_means_of_the_metrics_api() -> None:
    containers = [{"name": "pg", "usage": {"cpu": "1500000000n", "memory": "2Mi"}}, {"name": "x"}]
    pod = {
        "metadata": {"name": "db-0", "namespace": "databases"},
        "timestamp": "2026-11-22T12:54:16Z",
        "window": "15.5s",
        "containers": containers,
    }
    (mean,) = read_pod_metrics([pod])
    assert (mean.pod, mean.owner, mean.cpus, mean.memory) == (DB, "pg", 1.5, 2**21)
    assert mean.ended - mean.began == 15.5
    assert read_pod_metrics([]) == []
