"""Whether worker counts fit on a cluster, by what its API server says of nodes and pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from cli.run.cluster import Place, merge_chart_values
from cli.run.executors.kubernetes import KubernetesExecutor
from cli.run.executors.kubernetes.capacity import (
    Refusal,
    check_quantities,
    count_requests,
    count_workers,
    find_refusal,
    read_cluster,
)
from cli.system.errors import ConfigError
from cli.system.signals import Interrupts

NAMESPACE = "bench"


def node(name: str = "one", cpu: str = "4", memory: str = "8Gi", **more: Any) -> dict[str, Any]:
    """A node as the API server describes it."""
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def pod(on: str = "one", phase: str = "RunContext", **more: Any) -> dict[str, Any]:
    """A pod of one container."""
    requests = {"cpu": more.pop("cpu", "1"), "memory": more.pop("memory", "1Gi")}
    return {
        "metadata": {"namespace": "shop", **more},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }


def refusal(
    counts: Sequence[int],
    nodes: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]] = (),
    **values: Any,
) -> Refusal | None:
    """What refuses runs with the chart's values and these on top. A worker gets cpu 1 and memory 512Mi, the
    collector cpu 500m and memory 512Mi."""
    return find_refusal(counts, merge_chart_values(values), read_cluster(nodes, pods), NAMESPACE)


def check_refused(outcome: Refusal | None, *texts: str, may_pass: bool = False) -> None:
    """It says all this, in two lines, the second of which is a remedy."""
    assert outcome is not None
    assert len(outcome.text.splitlines()) == 2
    for text in texts:
        assert text in outcome.text, outcome.text
    assert outcome.may_pass is may_pass


def test_what_fits_is_not_refused() -> None:
    assert refusal([1, 2, 3], [node()]) is None


def test_names_the_counts_that_do_not_fit_and_what_to_set() -> None:
    check_refused(
        refusal([1, 2, 4, 8, 16], [node(cpu="6", memory="16Gi")]),
        "8 and 16 workers don't fit", "room for 5", "cpu 1 and memory 512Mi",
        "cpu: 6 of 6 free", "set `kubernetes: resources:` in config.yaml to cpu: 340m or less",
    )  # fmt: skip
    check_refused(refusal([4], [node()]), "4 workers don't fit", "room for 3")
    check_refused(refusal([1], [node(cpu="1")]), "1 worker doesn't fit", "cpu: 500m")


def test_what_it_tells_to_set_fits() -> None:
    nodes = [node(cpu="6"), node("two", cpu="3")]
    check_refused(refusal([16], nodes), "to cpu: 500m or less")
    assert refusal([16], nodes, resources={"cpu": "500m"}) is None
    check_refused(refusal([16], nodes, resources={"cpu": "510m"}), "to cpu: 500m or less")


def test_memory_too() -> None:
    nodes = [node(cpu="64", memory="4Gi")]
    check_refused(refusal([16], nodes), "memory: 4Gi of 4Gi free", "to memory: 224Mi or less")
    both = [node(cpu="4", memory="4Gi")]
    check_refused(refusal([16], both), "to cpu: 210m and memory: 224Mi or less")


def test_nothing_to_set_would_do() -> None:
    check_refused(refusal([1000], [node()]), "use fewer workers, or larger or more nodes")


def test_requests_below_the_limits_count() -> None:
    less = {"cpu": "100m"}
    assert refusal([8], [node()], requests=less, collectorRequests=less) is None
    check_refused(
        refusal([8], [node()], requests={"cpu": "900m"}), "cpu 900m and memory 512Mi each"
    )


def test_a_place_among_the_pods_of_a_node() -> None:
    check_refused(
        refusal([150], [node()], resources={"cpu": "1m", "memory": "1Mi"}),
        "room for 109", "places for pods: 110 of 110 free",
    )  # fmt: skip


def test_pods_that_are_there_count() -> None:
    pods = [pod(), pod(), pod(cpu="500m")]
    check_refused(
        refusal([1, 2], [node()], pods), "2 workers don't fit", "room for 1",
        "cpu: 1500m of 4 free", may_pass=True,
    )  # fmt: skip
    # What doesn't fit on an empty cluster either is not worth waiting for.
    check_refused(refusal([1, 2, 8], [node()], pods), "2 and 8 workers don't fit")


@pytest.mark.parametrize(
    "gone",
    [
        pod(phase="Succeeded"),
        pod(phase="Failed"),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"),
        pod(on=""),
        pod(on="elsewhere"),
    ],
)
def test_pods_that_take_nothing(gone: Mapping[str, Any]) -> None:
    assert refusal([3], [node()], [gone]) is None


def test_no_room_for_the_collector() -> None:
    check_refused(
        refusal([1], [node(cpu="400m")]),
        "no room for the collector", "cpu 500m", "`kubernetes: collectorResources:`",
    )  # fmt: skip


def test_the_collector_goes_where_it_costs_no_worker() -> None:
    def free(*cores: str) -> list[dict[str, Decimal]]:
        return [{"cpu": Decimal(number)} for number in cores]

    collector, worker = {"cpu": Decimal("0.5")}, {"cpu": Decimal(1)}
    assert count_workers(free("2", "2"), collector, worker) == 3
    assert count_workers(free("2", "2.5"), collector, worker) == 4
    assert count_workers(free("2", "0.5"), collector, worker) == 2
    assert count_workers(free("0.4"), collector, worker) == -1
    assert count_workers([], collector, worker) == -1


def test_a_resource_that_no_node_has() -> None:
    gpu = {"example.com/gpu": 1}
    check_refused(refusal([1], [node()], resources=gpu), "example.com/gpu: 0 of 0 free")


def test_nodes_that_do_not_take_the_pods() -> None:
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    nodes = [
        node(labels={"pool": "clients"}),
        node("two"),
        node("three", labels={"pool": "clients"}, taints=[taint]),
    ]
    clients = {"pool": "clients"}
    check_refused(refusal([4], nodes, nodeSelector=clients), "4 workers don't fit", "1 of 3 nodes")
    tolerated = [{"key": "dedicated", "operator": "Exists"}]
    assert refusal([4], nodes, nodeSelector=clients, tolerations=tolerated) is None
    check_refused(
        refusal([1], nodes, nodeSelector={"pool": "none"}),
        "no node", "3: lacks the label pool=none", "nodeSelector",
    )  # fmt: skip
    check_refused(refusal([1], nodes[2:]), "has the taint dedicated=db:NoSchedule", "tolerations")


@pytest.mark.parametrize(
    ("toleration", "enough"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "value": "db"}, True),
        ({"key": "dedicated", "value": "db", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Equal", "value": "web"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Mapping[str, str], enough: bool) -> None:
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    outcome = refusal([1], [node(taints=[taint])], tolerations=[toleration])
    assert (outcome is None) is enough


def test_cordoned_and_merely_disliked_nodes() -> None:
    check_refused(refusal([1], [node(unschedulable=True)]), "it is cordoned")
    mild = {"key": "slow", "effect": "PreferNoSchedule"}
    assert refusal([1], [node(taints=[mild])]) is None


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "In", "values": ["b"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "disks", "operator": "Gt", "values": ["1"]}, True),
        ({"key": "disks", "operator": "Lt", "values": ["1"]}, False),
    ],
)
def test_node_affinity(expression: Mapping[str, Any], met: bool) -> None:
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    nodes = [node(labels={"zone": "a", "disks": "2"})]
    outcome = refusal([1], nodes, affinity={"nodeAffinity": required})
    assert (outcome is None) is met


def test_kept_away_from_the_database() -> None:
    database = {"app": "postgres"}
    nodes = [node(), node("two")]
    there = [pod("one", labels={**database, "shard": "1"})]
    away: dict[str, Any] = {"keepAwayFrom": database, "keepAwayFromNamespaces": ["shop"]}
    check_refused(refusal([4], nodes, there, **away), "1 of 2 nodes have room for 3")
    check_refused(refusal([1], nodes[:1], there, **away), "1: has a pod that keepAwayFrom names")
    assert refusal([6], nodes, there, **away, keepAwayPolicy="preferred") is None
    # By default the database is looked for in the run's own namespace.
    assert refusal([6], nodes, there, keepAwayFrom=database) is None


def test_with_a_priority_other_pods_make_room() -> None:
    pods = [pod(), pod(), pod()]
    assert refusal([3], [node()], pods, priorityClassName="high") is None
    check_refused(refusal([4], [node()], pods, priorityClassName="high"), "room for 3")


@pytest.mark.parametrize(
    "nodes",
    [[], [node(cpu="1", labels={"eks.amazonaws.com/compute-type": "fargate"})]],
    ids=["none-to-see", "made-for-one-pod-each"],
)
def test_nodes_that_come_with_their_pods_are_not_judged(nodes: list[dict[str, Any]]) -> None:
    assert refusal([16], nodes) is None


def test_requests_of_a_pod_with_all_kinds_of_containers() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    two = [container("200m"), container("300m"), {}]
    assert count_requests({"containers": two})["cpu"] == Decimal("0.5")
    with_start = {"containers": two, "initContainers": [container("2")]}
    assert count_requests(with_start)["cpu"] == 2
    beside = {"containers": two, "initContainers": [container("1", restartPolicy="Always")]}
    assert count_requests(beside)["cpu"] == Decimal("1.5")
    overhead = {"containers": two, "overhead": {"cpu": "250m"}}
    assert count_requests(overhead)["cpu"] == Decimal("0.75")
    for_all = {"containers": two, "resources": {"requests": {"cpu": "4"}}}
    assert count_requests(for_all)["cpu"] == 4


POOL = {"karpenter.sh/nodepool": "clients"}


@pytest.mark.parametrize(
    ("values", "nodes", "may_grow"),
    [
        # A pool that has no node yet.
        ({"nodeSelector": {"pool": "clients"}}, [node()], True),
        ({}, [node(taints=[{"key": "gpu", "effect": "NoSchedule"}])], True),
        # More workers than there is room for: where nodes may be added, and where nobody does.
        ({}, [node(labels=POOL)], True),
        ({}, [node()], False),
        ({"nodeSelector": {"own": "yes"}}, [node(labels=POOL), node("b", labels={"own": "yes"})], False),
    ],
)  # fmt: skip
def test_what_an_autoscaler_may_satisfy_is_told_from_what_it_can_not(
    values: dict[str, Any], nodes: Sequence[Mapping[str, Any]], may_grow: bool
) -> None:
    outcome = refusal([16], nodes, **values)
    assert outcome is not None
    assert outcome.may_grow is may_grow


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


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], KubernetesExecutor]:
    """For a pool that has no node yet, and this patience."""
    monkeypatch.setattr(
        "cli.run.executors.kubernetes.read_nodes", lambda _: read_cluster([node()], [])
    )

    def make(patience: str) -> KubernetesExecutor:
        values = {"nodeSelector": {"pool": "clients"}, "scheduling_patience": patience}
        executor = KubernetesExecutor(Interrupts(), Place(NAMESPACE), values)
        monkeypatch.setattr(executor, "_client", None, raising=False)
        return executor

    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    return make


def test_a_node_is_waited_for_unless_the_user_has_no_patience(
    executor: Callable[[str], KubernetesExecutor], capsys: pytest.CaptureFixture[str]
) -> None:
    executor("5m").check_capacity([1], 1)
    output = capsys.readouterr().err
    assert "lacks the label pool=clients" in output
    assert "waiting for a node, 5 min at most (`kubernetes: scheduling_patience:`" in output
    with pytest.raises(ConfigError, match="lacks the label pool=clients"):
        executor("0s").check_capacity([1], 1)
    with pytest.raises(ConfigError, match="scheduling_patience: 'soon'"):
        executor("soon")
