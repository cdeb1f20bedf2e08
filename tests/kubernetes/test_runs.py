"""Runs that go well: the same results as on one machine, no secrets shown, nothing left."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import numpy as np
import psutil
import pytest

from tests.e2e.live import Reader
from tests.e2e.tool import PASSWORD, Done, eventually, flatten

from ..helpers import counted
from .cluster import Namespace
from .tool import DATABASE, HALF, HOLE, WORKER, ClusterTool

pytestmark = pytest.mark.cluster

# Their content differs between databases, machines and executors, or between any two runs.
_FREE = {"database", "packages", "module", "errors", "tool", "client", "others"}


def check_same_shape(left: Any, right: Any, where: str = "") -> None:
    """Same keys, same types. What is not known in one place (None) may be known in the other."""
    if left is None or right is None:
        return
    if isinstance(left, dict):
        assert isinstance(right, dict), where
        assert set(left) == set(right), where
        for key in left:
            if key not in _FREE:
                check_same_shape(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list):
        assert isinstance(right, list), where
        if left and right:
            check_same_shape(left[0], right[0], where + "[]")
    elif isinstance(left, int | float) and not isinstance(left, bool):
        assert isinstance(right, int | float) and not isinstance(right, bool), where
    else:
        assert type(left) is type(right), where


def check_environment(environment: Any, namespace: Namespace, pods: int) -> None:
    """Check where it ran, on what, from which image."""
    assert environment["version"].startswith("v1.")
    assert environment["helm"].startswith("v")
    assert environment["namespace"] == namespace.name
    assert len(environment["placement"]) == pods
    assert set(environment["placement"].values()) <= set(environment["nodes"])
    for node in environment["nodes"].values():
        assert node["kernel"] and node["container_runtime"] and node["cpu"] and node["memory"]
    assert environment["images"] and all("sha256:" in image for image in environment["images"])


def local_result(tool: ClusterTool, *arguments: object) -> dict[str, Any]:
    """The same command by the local executor against the embedded PostgreSQL."""
    copy = tool.place / "local.json"
    tool.document["targets"]["embedded"] = {
        "module": "postgres",
        "executor": "local",
        "start_server": "postgresql",
        "data_dir": str(tool.embedded_home),
    }
    tool.configure()
    command, *rest = arguments
    output = tool.place / "local-results"
    tool.outputs.append(output)
    done = tool.run(
        command, "--target", "embedded", *rest, "--output", output, "--json", copy, within_s=60
    )
    if command == "insert":
        tool.fine(done, copy)
    else:
        done.ok()
    return tool._read(copy)


def test_writers_and_readers_at_a_rate(tool: ClusterTool, database: str) -> None:
    tool.configure(resources={**WORKER, "cpu": HALF})
    tool.add_database(database)
    done = tool.run_here(
        "mixed", "--target", DATABASE, "--workers", 1, "--readers", 1, "--batch", 10, "--rate", 300,
        "--query-rate", 5, "--queries", "count-events", "--arrivals", "even", "--duration", "3s",
        "--warm-up", "1s", "--prefill", 1000, "--runs", 1, "--baseline", "--json", tool.json,
    ).ok()  # fmt: skip
    assert "What writers and readers cost each other" in done.out
    result = tool._read(tool.json)
    (beside,), (first, second) = result["runs"], result["baseline"]
    alone = {run["groups"][0]["role"]: run for run in (first, second)}
    for run in (flatten(beside), flatten(alone["write"])):
        assert run["valid"]
        assert run["window_s"] == pytest.approx(2.0, abs=0.1)
        assert run["offered"]["due"] == pytest.approx(600, rel=0.05)
        assert run["verification"]["stored"] == 1000 + run["count"]
    for read in (flatten(beside, "read"), flatten(alone["read"], "read")):
        assert read["valid"]
        assert read["offered"]["due"] == pytest.approx(10, abs=1)


def test_the_fleet_is_cut_off_and_a_limit_ends_a_run(tool: ClusterTool) -> None:
    """While they measure, the launcher tells the pods only this: when events are held back, and that the run
    is over."""
    load = ("--workers", 2, "--batch", 10, "--rate", 200, "--arrivals", "even", "--runs", 1)
    tool.configure(resources={**WORKER, "cpu": HALF})
    tool.run_here(
        "insert", "--target", HOLE, *load, "--duration", "6s", "--disturb", "2s pause-fleet 2s",
        "--json", tool.json,
    ).ok()  # fmt: skip
    (run,) = tool._read(tool.json)["runs"]
    paused = flatten(run)
    assert paused["valid"] is True
    assert (run["marks"][0]["at_s"], run["marks"][0]["ended_s"]) == (2.0, 4.0)
    assert dict(paused["timeline"]).get(3) is None
    assert paused["catch_ups"][0]["held"] >= 380
    done = tool.run_here(
        "insert", "--target", HOLE, *load, "--duration", "100s", "--limit", "p99=1ms", "--abort-on-limit",
        "--json", tool.json,
    )  # fmt: skip
    assert done.status == 3
    assert done.seconds < 60
    (run,) = tool._read(tool.json)["runs"]
    assert run["aborted"]["limit"] == "p99=1ms"


def test_sweep_and_query(tool: ClusterTool, namespace: Namespace, database: str) -> None:
    tool.configure(resources={**WORKER, "cpu": HALF})
    tool.add_database(database)
    # Not fewer: within a period of the CPU limit, 0.1 s, nothing is known of throttling.
    sweep = ("--workers", "1,2", "--runs", 2, "--num-inserts", 1500)
    inserted = tool.run_here("insert", "--target", DATABASE, *sweep, "--json", tool.json)
    tool.fine(inserted, tool.json)
    assert "Workers" in inserted.out
    result = tool._read(tool.json)
    runs = [flatten(run) for run in result["runs"]]
    assert [(run["workers"], run["run"]) for run in runs] == [
        (1, 1), (1, 2), (2, 1), (2, 2),
    ]  # fmt: skip
    for run in runs:
        assert run["verification"] == counted(run["count"])
        assert run["client"]["throttled_share"] is not None
        nodes = {span["node"] for span in run["per_worker"]}
        assert nodes <= set(result["environment"]["kubernetes"]["nodes"])
        assert {machine["node"] for machine in run["machines"]} == nodes
        # The counters of the node, which a container sees, too.
        assert all(machine["steal_share"] is not None for machine in run["machines"])
    # Those of both releases: two pods and three.
    check_environment(result["environment"]["kubernetes"], namespace, pods=5)
    single = ("--workers", 1, "--runs", 1)
    check_same_shape(result, local_result(tool, "insert", *single, "--num-inserts", 1500))

    queried = tool.run_here(
        "query", "--target", DATABASE, "--workers", 2, "--runs", 2, "--json", tool.json,
    ).ok()  # fmt: skip
    assert "count-events" in queried.out
    result = tool._read(tool.json)
    (run,) = result["runs"]
    assert sum(len(query["each"]) for query in run["groups"][0]["queries"]) == 5 * 2 * 2
    check_environment(result["environment"]["kubernetes"], namespace, pods=3)
    check_same_shape(result, local_result(tool, "query", *single))


_COUNT_CPU = """
import time
from pathlib import Path

def count():
    try:
        whole = Path("/sys/fs/cgroup/cpu.stat").read_text().split()
        return int(whole[whole.index("usage_usec") + 1]) / 1e6
    except FileNotFoundError:
        return int(Path("/sys/fs/cgroup/cpuacct/cpuacct.usage").read_text()) / 1e9

while not Path("/tmp/over").exists():
    print(time.time(), count(), flush=True)
    time.sleep(0.1)
Path("/tmp/over").unlink()
"""
"""Prints instant and CPU seconds of the database's container, by its own cgroup, until there is a file
`over`."""


def used_between(began: float, ended: float, lines: Sequence[str]) -> float:
    """CPU seconds between two instants, by what was printed before and after each."""
    looks = np.array([[float(part) for part in line.split()] for line in lines])
    assert looks[0, 0] < began < ended < looks[-1, 0]
    first, last = np.interp([began, ended], looks[:, 0], looks[:, 1])
    return float(last - first)


def test_cpu_of_the_databases_pod(tool: ClusterTool, namespace: Namespace, database: str) -> None:
    """By the kubelet's figures it is as much as its cgroup says."""
    tool.add_database(database)
    where = Namespace(namespace.cluster, database.partition(".")[2])
    selector = f"app.kubernetes.io/name in (postgresql, none) in {where.name}"
    tool.document["targets"][DATABASE]["kubernetes"] = {"database": selector}
    tool.configure()
    # The kubelet's samples lack the window's ends, which are taken to be like the rest: on a machine that
    # others make busy now and then, they are not.
    for _ in range(3):
        run, expected_s, page, done = run_counted(tool, where)
        used = run["resources"]
        if used["cpu_s"] == pytest.approx(expected_s, rel=0.1):
            break
    assert used["cpu_s"] == pytest.approx(expected_s, rel=0.1)
    mean = used["cpu_s"] / run["window_s"]
    assert used["names"] == [f"{where.name}/postgres"]
    assert used["nodes"] == [machine["node"] for machine in run["machines"]]
    assert used["cpu_share"] == pytest.approx(mean / used["cpus"], rel=0.01)
    assert used["cpu_us_per_event"] == pytest.approx(1e6 * used["cpu_s"] / run["count"])
    assert used["memory_peak_bytes"] > 10e6
    assert len(used["timeline"]) >= 2
    assert used["restarts"] == 0
    assert f"the database used {used['cpu_share']:.0%} of {used['cpus']:g} CPUs" in done.out, (
        done.out
    )
    page.wait()
    check_page(page, run)


def run_counted(tool: ClusterTool, where: Namespace) -> tuple[Any, float, Reader, Done]:
    """A run, and the CPU seconds that the cgroup of the database's container counted in its window."""
    with ThreadPoolExecutor() as threads:
        counted = threads.submit(where.execute, "postgres", _COUNT_CPU)
        try:
            running = tool.start(
                "insert", "--target", DATABASE, "--workers", 1, "--runs", 1, "--duration", "9s",
                "--live", "--json", tool.json,
            )  # fmt: skip
            page = Reader(running)
            done = tool.fine(running.wait(90))
        finally:
            where.execute("postgres", "open('/tmp/over', 'w')")
        lines = counted.result(30).splitlines()
    (run,) = map(flatten, tool._read(tool.json)["runs"])
    began, ended = (
        datetime.fromisoformat(run[key]).timestamp() for key in ("began_at", "ended_at")
    )
    return run, used_between(began, ended, lines), page, done


def check_page(page: Reader, run: Any) -> None:
    """It showed the pod's CPU and how far the workers were, as it happened; so did Prometheus."""
    assert page.told[-1]["ended"] == "done"
    cpus = [point["cpus"] for point in page.points if point.get("cpus")]
    # The samples that are in the result, whose mean is the cgroup's: single ones differ much. A kubelet that
    # takes long to answer is sampled every four seconds, and the last time when the page shows no more.
    timeline = [pytest.approx(cpus, rel=0.01) for _, cpus, _ in run["resources"]["timeline"]]
    assert any(sample in timeline for sample in cpus)
    states = [
        update["run"]
        for update in page.told
        if update["run"] and update["run"]["phase"] == "running"
    ]
    done = [state["groups"][0]["done"] for state in states if state["groups"]]
    assert done == sorted(done) and 0 < done[-1] <= run["count"]
    assert len(set(done)) >= 5
    (outcome,) = page.latest("runs")
    assert f"{run['rate_per_s']:,.0f}" in outcome["outcome"]
    last = page.metrics[-1]
    assert last["iot_benchmark_events_total"] in done
    assert last["iot_benchmark_database_cpus_used"] in cpus
    assert last["iot_benchmark_database_cpus_limit"] == run["resources"]["cpus"]
    assert last['iot_benchmark_phase{phase="run"}'] == 1


def test_steps_and_prefill(tool: ClusterTool, database: str) -> None:
    tool.configure(resources={**WORKER, "cpu": HALF})
    tool.add_database(database)
    common = ("insert", "--target", DATABASE, "--workers", 2, "--json", tool.json, "--runs", 1)
    tool.fine(tool.run_here(*common, "--num-inserts", 200, "--steps", 3))
    runs = [flatten(run) for run in tool._read(tool.json)["runs"]]
    assert [run["fill_level"] for run in runs] == [0, 400, 800]
    assert all(run["verification"]["ok"] for run in runs)

    # After what the steps have left, and after each other.
    done = tool.run_here(
        *common, "--no-clean", "--num-inserts", 200, "--prefill", 1001, "--runs", 2
    )
    tool.fine(done)
    runs = [flatten(run) for run in tool._read(tool.json)["runs"]]
    assert [run["fill_level"] for run in runs] == [2201, 3602]
    assert all(run["verification"]["ok"] for run in runs)
    assert all(run["phases_s"]["prefill"] > 0 for run in runs)


def test_password_is_nowhere(tool: ClusterTool, namespace: Namespace, database: str) -> None:
    tool.add_database(database)
    # Enough that it still runs when everything in the namespace has been read.
    running = tool.start_insert("--num-inserts", 30_000, target=DATABASE)
    seen: set[str] = set()

    def watched() -> bool:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                assert PASSWORD not in line, line
                if "helm" in line:
                    seen.add(line)
                    assert PASSWORD not in str(
                        {k: v for k, v in process.environ().items() if k != "E2E_PASSWORD"}
                    )
        return running.process.poll() is not None or "running" in running.err

    eventually(watched, "the run's window", 60, 0.05)
    assert any(" install " in line for line in seen)
    everything = namespace.everything()
    assert "iotb-" in everything
    assert PASSWORD not in everything
    for pod in namespace.await_running("worker"):
        names = {variable.name for variable in pod.spec.containers[0].env}
        assert names == {"NODE_NAME", "JOB_COMPLETION_INDEX"}
        shown = namespace.execute(
            pod.metadata.name,
            "from pathlib import Path as P\n"
            "print([P(f'/proc/{n}/{f}').read_bytes() for n in (1,) for f in ('environ', 'cmdline')])",
        )
        assert "simulator.main" in shown
        assert PASSWORD not in shown
    done = tool.fine(running.wait())
    assert PASSWORD not in done.out + done.err
    # The fixture checks that it is in no log and no result.


def test_existing_secret(tool: ClusterTool, namespace: Namespace, database: str) -> None:
    namespace.secret(
        "credentials",
        connection_string=f"host={database} user=postgres dbname=postgres password={PASSWORD}",
        max_retries="3",
    )
    tool.document["targets"][DATABASE] = {
        "module": "postgres",
        "kubernetes": {"existingSecret": "credentials"},
    }
    tool.configure()
    tool.insert(target=DATABASE)
    options = tool._read(tool.json)["options"]["module"]
    # Beside it are the workload's own options, none of which is secret.
    assert options == {
        "existingSecret": "credentials",
        "device_spread": 1,
        "clock_factor": 1,
        "tags": "row",
    }
    secret: Any = namespace.cluster.core.read_namespaced_secret("credentials", namespace.name)
    assert secret.data
    # doctor's check of the cluster is a run by another module, which has no such options.
    tool.run_here("doctor", "--config", tool.config, "--target", DATABASE).ok()
