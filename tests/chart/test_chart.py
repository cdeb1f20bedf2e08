"""The chart as helm renders it: without a cluster, but with helm."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cli.plan.config import chart_keys
from cli.run.cluster import CHART, RUN_LABEL, Helm, Place
from simulator.documents import merge_values, read_yaml

from ..helpers import settings as run_settings

EVERYTHING = yaml.safe_load((Path(__file__).parent / "everything.yaml").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

RUN = {"id": "12ab34cd", "workers": 3, "startedBy": "me@here", "settings": '[{"a": "hush-hush"}]'}
RELEASE = "iotb-12ab34cd"
SECRET_TEXT = "hush-hush"

Document = Mapping[str, Any]


def helm(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, or skip the test if there is none."""
    if shutil.which("helm") is None:
        if os.environ.get("REQUIRE_CLUSTER"):
            pytest.fail("REQUIRE_CLUSTER is set, but helm is not installed")
        pytest.skip("helm is not installed")
    command = ["helm", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def try_to_render(values: Document, kubernetes: str = "1.34.0") -> subprocess.CompletedProcess[str]:
    """Render the chart with these values."""
    arguments = ("template", RELEASE, CHART, "--kube-version", kubernetes, "-f", "-")
    return helm(*arguments, text=json.dumps(values))


def render(values: Document, kubernetes: str = "1.34.0") -> dict[str, dict[str, Any]]:
    """The objects by `kind/name`, the release's name left out."""
    done = try_to_render(values, kubernetes)
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    rendered = {
        f"{document['kind']}/{document['metadata']['name'].removeprefix(RELEASE)}": document
        for document in documents
    }
    assert len(rendered) == len(documents)
    return rendered


@pytest.fixture(scope="module")
def plain() -> dict[str, dict[str, Any]]:
    """The objects with the values that the tool always sets."""
    return render({"run": RUN})


@pytest.fixture(scope="module")
def full() -> dict[str, dict[str, Any]]:
    """The objects with every value set."""
    return render(EVERYTHING)


@pytest.fixture(params=["plain", "full"])
def objects(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """The objects of both."""
    documents: dict[str, dict[str, Any]] = request.getfixturevalue(request.param)
    return documents


def pod(objects: Document, component: str) -> Any:
    """A Job's pod template."""
    return objects[f"Job/-{component}"]["spec"]["template"]


def texts(value: Any) -> Iterator[str]:
    """All texts in a document."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def test_lint() -> None:
    for values in ({}, {"run": RUN}, EVERYTHING):
        done = helm("lint", "--strict", CHART, "-f", "-", text=json.dumps(values))
        assert done.returncode == 0, done.stdout
        assert "0 chart(s) failed" in done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", ["1.25.0", "1.34.0"])
def test_kubernetes_knows_every_field(kubernetes: str) -> None:
    for values in ({"run": RUN}, {"run": RUN, "runAsUser": None}, EVERYTHING):
        for item in render(values, kubernetes).values():
            kubernetes_validate.validate(item, kubernetes.rpartition(".")[0], strict=True)


def test_objects(plain: Document, full: Document) -> None:
    assert set(plain) == {
        "Job/-collector",
        "Job/-worker",
        "NetworkPolicy/-collector",
        "PodDisruptionBudget/",
        "Secret/",
        "Service/",
    }
    assert set(full) - set(plain) == {"NetworkPolicy/-egress", "ServiceAccount/"}


def test_labels(plain: Document, full: Document) -> None:
    for objects, run_id in ((plain, RUN["id"]), (full, "491133e5")):
        templates = [pod(objects, "collector"), pod(objects, "worker")]
        for item in [*objects.values(), *templates]:
            labels = item["metadata"]["labels"]
            assert labels[RUN_LABEL] == run_id
            assert labels["app.kubernetes.io/name"] == "iot-database-benchmark"
            assert labels["app.kubernetes.io/instance"] == RELEASE
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
            assert labels["app.kubernetes.io/version"]
            assert labels["helm.sh/chart"]


def test_jobs(plain: Document, full: Document) -> None:
    for objects, workers, deadline, kept_s in ((plain, 3, 86400, 3600), (full, 7, 1000, 200)):
        for component in ("collector", "worker"):
            spec = objects[f"Job/-{component}"]["spec"]
            assert spec["backoffLimit"] == 0
            assert spec["activeDeadlineSeconds"] == deadline
            assert spec["ttlSecondsAfterFinished"] == kept_s
            assert spec["template"]["spec"]["restartPolicy"] == "Never"
            annotations = objects[f"Job/-{component}"]["metadata"]["annotations"]
            assert annotations["iot-database-benchmark/started-by"] == "me@here"
        spec = objects["Job/-worker"]["spec"]
        assert spec["completionMode"] == "Indexed"
        assert spec["completions"] == spec["parallelism"] == workers
        condition = {"type": "DisruptionTarget", "status": "True"}
        assert spec["podFailurePolicy"] == {
            "rules": [{"action": "FailJob", "onPodConditions": [condition]}]
        }
        assert objects["PodDisruptionBudget/"]["spec"]["minAvailable"] == workers + 1


def test_a_thousand_workers_fit_the_objects() -> None:
    """An object may have about 1 MB. Neither Jobs nor settings grow with workers; settings do with runs."""
    settings = run_settings(workers=1_000, events=10**9, duration_s=600.0).model_dump_json()
    run = RUN | {"workers": 1_000, "settings": "[" + ",".join([settings] * 30) + "]"}
    objects = render({"run": run})
    assert objects["Job/-worker"]["spec"]["parallelism"] == 1_000
    sizes = {name: len(json.dumps(document)) for name, document in objects.items()}
    assert sizes.pop("Secret/") < 100_000
    assert max(sizes.values()) < 10_000


def test_older_kubernetes() -> None:
    """The field is refused where it isn't known yet."""
    for version in ("1.24.0", "1.25.3"):
        spec = render({"run": RUN}, version)["Job/-worker"]["spec"]
        assert "podFailurePolicy" not in spec
    spec = render({"run": RUN}, "v1.29.3-eks-a1b2c3")["Job/-worker"]["spec"]
    assert "podFailurePolicy" in spec
    refused = try_to_render({"run": RUN}, "1.23.0")
    assert refused.returncode and "kubeVersion" in refused.stderr


def test_service_and_probe(objects: Document) -> None:
    port = objects["Service/"]["spec"]["ports"][0]
    container = pod(objects, "collector")["spec"]["containers"][0]
    assert port["name"] == "http"
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    selector = objects["Service/"]["spec"]["selector"]
    assert selector.items() <= pod(objects, "collector")["metadata"]["labels"].items()
    assert not selector.items() <= pod(objects, "worker")["metadata"]["labels"].items()
    assert (
        f"http://{RELEASE}:{port['port']}"
        in pod(objects, "worker")["spec"]["containers"][0]["args"]
    )


@pytest.mark.parametrize("component", ["collector", "worker"])
def test_restricted(plain: Document, full: Document, component: str) -> None:
    """What the restricted Pod Security Standard asks for, and more."""
    for objects, user in ((plain, 10001), (full, 20002)):
        spec = pod(objects, component)["spec"]
        assert spec["automountServiceAccountToken"] is False
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == user
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        own = [volume for volume in spec["volumes"] if volume["name"] != "recordings"]
        assert {kind for volume in own for kind in volume} == {"name", "secret", "emptyDir"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)


def test_resources(plain: Document, full: Document) -> None:
    for objects, values in ((plain, DEFAULTS), (full, EVERYTHING)):
        for component, key in (("collector", "collectorResources"), ("worker", "resources")):
            resources = pod(objects, component)["spec"]["containers"][0]["resources"]
            lower = values["requests" if component == "worker" else "collectorRequests"]
            assert resources["limits"] == values[key]
            assert resources["requests"] == {**values[key], **lower}
            assert bool(lower) == (objects is full)
    nothing = pod(render({"run": RUN, "requests": None}), "worker")["spec"]["containers"][0]
    assert nothing["resources"]["requests"] == DEFAULTS["resources"]


def test_image(plain: Document, full: Document) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for component in ("collector", "worker"):
        spec = pod(plain, component)["spec"]
        assert spec["containers"][0]["image"] == f"iot-database-benchmark:{version}"
        assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
        assert "imagePullSecrets" not in spec
        spec = pod(full, component)["spec"]
        image = "registry.example.org:5000/team/benchmark:1e5"
        assert spec["containers"][0]["image"] == image
        assert spec["containers"][0]["imagePullPolicy"] == "Never"
        assert spec["imagePullSecrets"] == [{"name": "my-registry"}]


def test_placement(plain: Document, full: Document) -> None:
    for component in ("collector", "worker"):
        spec = pod(plain, component)["spec"]
        assert not {"nodeSelector", "tolerations", "affinity", "priorityClassName"} & set(spec)
        template = pod(full, component)
        spec = template["spec"]
        assert spec["nodeSelector"] == EVERYTHING["nodeSelector"]
        assert spec["tolerations"] == EVERYTHING["tolerations"]
        assert spec["priorityClassName"] == "high"
        assert spec["affinity"]["nodeAffinity"] == EVERYTHING["affinity"]["nodeAffinity"]
        assert template["metadata"]["labels"]["team"] == "storage"
        annotations = template["metadata"]["annotations"]
        assert annotations["sidecar.istio.io/inject"] == "false"
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
        assert annotations["karpenter.sh/do-not-disrupt"] == "true"
        assert re.fullmatch("[0-9a-f]{64}", annotations["checksum/settings"])


def test_what_platforms_want(plain: Document, full: Document) -> None:
    """Accounts, environment, volumes, schedulers, and labels of the Jobs themselves."""
    for component in ("collector", "worker"):
        spec = pod(plain, component)["spec"]
        own = {"serviceAccountName", "schedulerName", "runtimeClassName"}
        assert not own & set(spec)
        metadata = full[f"Job/-{component}"]["metadata"]
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "benchmarks"
        assert metadata["annotations"]["team.example/ticket"] == "12"
        spec = pod(full, component)["spec"]
        assert spec["schedulerName"] == "volcano"
        assert spec["runtimeClassName"] == "gvisor"
        assert spec["serviceAccountName"] == full["ServiceAccount/"]["metadata"]["name"]
        assert spec["automountServiceAccountToken"] is False
        container = spec["containers"][0]
        assert container["envFrom"] == EVERYTHING["envFrom"]
        assert spec["volumes"][-1] == EVERYTHING["extraVolumes"][0]
        assert container["volumeMounts"][-1] == EVERYTHING["extraVolumeMounts"][0]
    account = full["ServiceAccount/"]
    assert account["metadata"]["annotations"] == EVERYTHING["serviceAccount"]["annotations"]
    assert account["automountServiceAccountToken"] is False
    existing = render({"run": RUN, "serviceAccount": {"name": "benchmark"}})
    assert "ServiceAccount/" not in existing
    assert pod(existing, "worker")["spec"]["serviceAccountName"] == "benchmark"


def test_openshift() -> None:
    """It gives pods user and groups by itself, and refuses those that a pod names."""
    objects = render({"run": RUN, "runAsUser": None})
    for component in ("collector", "worker"):
        context = pod(objects, component)["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_address_families(plain: Document, full: Document) -> None:
    assert not {"ipFamilies", "ipFamilyPolicy"} & set(plain["Service/"]["spec"])
    assert full["Service/"]["spec"]["ipFamilies"] == ["IPv6", "IPv4"]
    assert full["Service/"]["spec"]["ipFamilyPolicy"] == "PreferDualStack"


def test_who_may_come_from_outside(plain: Document, full: Document) -> None:
    assert "type" not in plain["Service/"]["spec"]
    assert full["Service/"]["spec"]["type"] == "NodePort"
    assert full["Service/"]["spec"]["ports"][0]["nodePort"] == 30500
    assert full["Service/"]["metadata"]["annotations"] == EVERYTHING["service"]["annotations"]


def test_keep_away(full: Document) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "postgresql"}},
    }
    required = render({"run": RUN, "keepAwayFrom": {"app.kubernetes.io/name": "postgresql"}})
    for component in ("collector", "worker"):
        anti = pod(required, component)["spec"]["affinity"]["podAntiAffinity"]
        assert anti == {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        # A preference, in addition to what the user's own affinity requires.
        assert pod(full, component)["spec"]["affinity"]["podAntiAffinity"] == {
            **EVERYTHING["affinity"]["podAntiAffinity"],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term | {"namespaces": ["databases"]}}
            ],
        }


def test_spread(plain: Document, full: Document) -> None:
    for objects, values in ((plain, DEFAULTS), (full, EVERYTHING)):
        template = pod(objects, "worker")
        constraints = template["spec"]["topologySpreadConstraints"]
        assert len(constraints) == len(values["topologySpread"])
        for constraint, expected in zip(constraints, values["topologySpread"], strict=True):
            assert expected.items() <= constraint.items()
            labels = constraint["labelSelector"]["matchLabels"]
            assert labels.items() <= template["metadata"]["labels"].items()
            assert not labels.items() <= pod(objects, "collector")["metadata"]["labels"].items()
        assert "topologySpreadConstraints" not in pod(objects, "collector")["spec"]


def test_network_policy(plain: Document, full: Document) -> None:
    for objects in (plain, full):
        spec = objects["NetworkPolicy/-collector"]["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        chosen = spec["podSelector"]["matchLabels"]
        assert chosen.items() <= pod(objects, "collector")["metadata"]["labels"].items()
        assert not chosen.items() <= pod(objects, "worker")["metadata"]["labels"].items()
        assert len(spec["ingress"]) == 1
        assert spec["ingress"][0]["ports"] == [{"port": "http"}]
        workers = spec["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
        assert workers["app.kubernetes.io/instance"] == RELEASE
        assert workers.items() <= pod(objects, "worker")["metadata"]["labels"].items()
        assert "namespaceSelector" in spec["ingress"][0]["from"][1]
    blocks = plain["NetworkPolicy/-collector"]["spec"]["ingress"][0]["from"][2:]
    assert [block["ipBlock"] for block in blocks] == [{"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}]
    blocks = full["NetworkPolicy/-collector"]["spec"]["ingress"][0]["from"][2:]
    # Kubernetes refuses an exception that isn't within the range.
    assert [block["ipBlock"] for block in blocks] == [
        {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]},
        {"cidr": "::/0", "except": ["fd00::/64"]},
        {"cidr": "10.0.0.0/24"},
    ]


def test_egress(full: Document) -> None:
    policy = full["NetworkPolicy/-egress"]["spec"]
    assert policy["policyTypes"] == ["Egress"]
    chosen = policy["podSelector"]["matchLabels"]
    for component in ("collector", "worker"):
        assert chosen.items() <= pod(full, component)["metadata"]["labels"].items()
    collector, names, database, own = policy["egress"]
    container = pod(full, "collector")["spec"]["containers"][0]
    assert collector["ports"] == [{"port": container["ports"][0]["containerPort"]}]
    selector = collector["to"][0]["podSelector"]["matchLabels"]
    assert selector.items() <= pod(full, "collector")["metadata"]["labels"].items()
    assert not selector.items() <= pod(full, "worker")["metadata"]["labels"].items()
    ports = {(port["port"], port["protocol"]) for port in names["ports"]}
    assert ports == {(port, kind) for port in (53, 5353) for kind in ("UDP", "TCP")}
    assert database["to"][0]["podSelector"]["matchLabels"] == EVERYTHING["keepAwayFrom"]
    (where,) = database["to"][0]["namespaceSelector"]["matchExpressions"]
    assert where["key"] == "kubernetes.io/metadata.name" and where["values"] == ["databases"]
    assert own == EVERYTHING["networkPolicy"]["egress"]["rules"][0]
    alone = {"networkPolicy": {"enabled": False, "egress": {"enabled": True}}}
    rendered = render({"run": RUN, **alone, "keepAwayFrom": {"app": "db"}})
    assert "NetworkPolicy/-collector" not in rendered
    rules = rendered["NetworkPolicy/-egress"]["spec"]["egress"]
    assert len(rules) == 3
    assert rules[2]["to"] == [{"podSelector": {"matchLabels": {"app": "db"}}}]


def test_what_can_be_left_out() -> None:
    off = {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
    objects = render({"run": RUN, "topologySpread": [], **off})
    assert not [name for name in objects if name.startswith(("NetworkPolicy", "PodDisruption"))]
    assert "topologySpreadConstraints" not in pod(objects, "worker")["spec"]


@pytest.mark.parametrize("component", ["collector", "worker"])
def test_settings_are_files(plain: Document, full: Document, component: str) -> None:
    for objects, existing in ((plain, None), (full, "my-database")):
        spec = pod(objects, component)["spec"]
        container = spec["containers"][0]
        secrets = {v["name"]: v["secret"] for v in spec["volumes"] if "secret" in v}
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert secrets["settings"] == {"secretName": RELEASE, "defaultMode": 0o440}
        assert f"{mounts['settings']['mountPath']}/settings.json" in container["args"]
        assert mounts["settings"]["readOnly"] is True
        own, *more = container["env"]
        assert own["name"] == "NODE_NAME"
        recordings = {"name": "IOTBENCH_RECORDINGS", "value": "/run/benchmark/recordings"}
        assert more == ([] if existing is None else [recordings, *EVERYTHING["env"]])
        if existing is None:
            assert set(secrets) == {"settings"}
            assert "envFrom" not in container
            assert "--credentials" not in container["args"]
        else:
            # The one key that `secretKeys` names, as the file of its option.
            assert secrets["credentials"] == {
                "secretName": existing,
                "defaultMode": 0o440,
                "items": [{"key": "pg-pass", "path": "password"}],
            }
            place = container["args"].index("--credentials")
            assert container["args"][place + 1] == mounts["credentials"]["mountPath"]
            assert mounts["credentials"]["readOnly"] is True


@pytest.mark.parametrize("component", ["collector", "worker"])
def test_a_recording_has_a_place(full: Document, component: str) -> None:
    """A disk of the pod's own, of its size, or a volume that pods share."""
    run = {**RUN, "recordingSize": "700Mi"}
    own = {"name": "recordings", "emptyDir": {"sizeLimit": "700Mi"}}
    shared = {"name": "recordings", "persistentVolumeClaim": {"claimName": "recordings"}}
    for objects, volume in ((render({"run": run}), own), (full, shared)):
        spec = pod(objects, component)["spec"]
        assert volume in spec["volumes"]
        (place,) = [
            entry["value"]
            for entry in spec["containers"][0]["env"]
            if entry["name"] == "IOTBENCH_RECORDINGS"
        ]
        mount = {"name": "recordings", "mountPath": place}
        assert mount in spec["containers"][0]["volumeMounts"]


def test_passwords_are_in_the_secret_alone(plain: Document, full: Document) -> None:
    encoded = base64.b64encode(SECRET_TEXT.encode()).decode()
    for objects, settings in ((plain, RUN["settings"]), (full, EVERYTHING["run"]["settings"])):
        for name, item in objects.items():
            if name == "Secret/":
                assert item["stringData"] == {"settings.json": settings}
            else:
                assert not any(SECRET_TEXT in text or encoded in text for text in texts(item))
    assert not (CHART / "templates" / "NOTES.txt").exists()


# --- values ---------------------------------------------------------------------------------------


def test_settings_are_needed() -> None:
    refused = try_to_render({})
    assert refused.returncode and "run.settings is set by run.py" in refused.stderr


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"nodeSelectr": {}}, "nodeSelectr"),
        ({"image": {"repository": "x"}}, "repository"),
        ({"image": {"tag": 1.5}}, "tag"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"imagePullSecrets": ["my-registry"]}, "imagePullSecrets"),
        ({"existingSecret": ["a"]}, "existingSecret"),
        ({"secretKeys": ["password"]}, "secretKeys"),
        ({"secretKeys": {"password": "a/b"}}, "secretKeys"),
        ({"scheduling_patience": "soon"}, "scheduling_patience"),
        ({"resources": {"cpu": "much"}}, "cpu"),
        ({"resources": {"cpu": 0}}, "cpu"),
        ({"collectorResources": "1"}, "collectorResources"),
        ({"nodeSelector": {"ssd": True}}, "nodeSelector/ssd"),
        ({"tolerations": {"key": "a"}}, "tolerations"),
        ({"affinity": {"nodeAfinity": {}}}, "nodeAfinity"),
        ({"keepAwayFrom": ["postgresql"]}, "keepAwayFrom"),
        ({"keepAwayFromNamespaces": "databases"}, "keepAwayFromNamespaces"),
        ({"database": {"app": "postgresql"}}, "database"),
        ({"databaseLink": "fast"}, "databaseLink"),
        ({"keepAwayPolicy": "perhaps"}, "keepAwayPolicy"),
        ({"topologySpread": [{"topologyKey": "zone"}]}, "maxSkew"),
        ({"runAsUser": "postgres"}, "runAsUser"),
        ({"requests": {"cpu": "much"}}, "requests"),
        ({"jobLabels": {"a": 1}}, "jobLabels"),
        ({"recordings": {"source": "here"}}, "source"),
        ({"recordings": {"volume": {"name": "mine", "emptyDir": {}}}}, "volume"),
        ({"jobAnnotations": ["a"]}, "jobAnnotations"),
        ({"serviceAccount": {"name": "a", "annotations": {"b": "c"}}}, "serviceAccount"),
        ({"serviceAccount": {"token": True}}, "token"),
        ({"env": {"A": "b"}}, "env"),
        ({"env": [{"name": "NODE_NAME", "value": "a"}]}, "env"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a"}}}]}, "secretKeyRef"),
        ({"envFrom": [{"secretRef": {"name": "a"}}]}, "secretRef"),
        ({"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}, "extraVolumes"),
        ({"extraVolumeMounts": [{"name": "a"}]}, "mountPath"),
        ({"schedulerName": 1}, "schedulerName"),
        ({"runtimeClassName": 1}, "runtimeClassName"),
        ({"service": {"type": "ExternalName"}}, "type"),
        ({"service": {"nodePort": "30500"}}, "nodePort"),
        ({"run": {"collector": "bench.example.com"}}, "collector"),
        ({"service": {"ipFamilies": ["IPv5"]}}, "ipFamilies"),
        ({"service": {"ipFamilyPolicy": "Both"}}, "ipFamilyPolicy"),
        ({"networkPolicy": {"egress": {"dnsPorts": ["dns"]}}}, "dnsPorts"),
        ({"networkPolicy": {"egress": {"rules": [{"from": []}]}}}, "from"),
        ({"podAnnotations": {"a": 1}}, "podAnnotations"),
        ({"podLabels": {"a": True}}, "podLabels"),
        ({"priorityClassName": 1}, "priorityClassName"),
        ({"networkPolicy": {"podCidrs": ["10.0.0.0"]}}, "podCidrs"),
        ({"networkPolicy": {"enabled": "no"}}, "enabled"),
        ({"podDisruptionBudget": {"minAvailable": 1}}, "minAvailable"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds"),
        ({"ttlSecondsAfterFinished": "1h"}, "ttlSecondsAfterFinished"),
        ({"run": {"workers": 0}}, "workers"),
        ({"run": {"id": 4.9e10}}, "id"),
        ({"tolerations": [{"key": "a", "value": True}]}, "value"),
        ({"tolerations": [{"key": "a", "effects": "NoSchedule"}]}, "effects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_wrong_values_are_refused(values: dict[str, Any], text: str) -> None:
    refused = try_to_render(merge_values({"run": RUN}, values))
    assert refused.returncode
    assert "values don't meet the specifications of the schema" in refused.stderr
    assert text in refused.stderr


def key_paths(values: Document, prefix: str = "") -> Iterator[str]:
    """`image`, `image.name`, … of values.yaml; what users fill themselves is empty there."""
    for key, value in values.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from key_paths(value, f"{prefix}{key}.")


def schema_paths(schema: Document, prefix: str = "") -> Iterator[str]:
    """The same paths, of the schema."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for key, value in schema.get("properties", {}).items():
        yield prefix + key
        yield from schema_paths(value, f"{prefix}{key}.")


def test_names_that_look_like_numbers_stay_texts() -> None:
    names = ("priorityClassName", "schedulerName", "runtimeClassName", "existingSecret")
    values = dict.fromkeys(names, "1e3") | {"serviceAccount": {"name": "on"}}
    taints = [{"key": "1e3", "value": "true", "effect": "NoSchedule"}]
    job = render({"run": RUN, **values, "tolerations": taints})["Job/-worker"]
    spec = job["spec"]["template"]["spec"]
    assert [spec[name] for name in names[:3]] == ["1e3"] * 3
    assert spec["serviceAccountName"] == "on"
    secrets = [volume.get("secret", {}).get("secretName") for volume in spec["volumes"]]
    assert "1e3" in secrets
    assert spec["tolerations"] == taints


def test_values_and_schema_have_the_same_keys() -> None:
    users_own = ("affinity.",)
    paths = {path for path in schema_paths(SCHEMA) if not path.startswith(users_own)}
    assert set(key_paths(DEFAULTS)) == paths
    assert SCHEMA["additionalProperties"] is False
    assert set(chart_keys()) == set(DEFAULTS) - {"run"}
    # So that the file with everything has everything.
    assert set(key_paths(DEFAULTS)) <= set(key_paths(EVERYTHING))


def test_each_value_is_explained() -> None:
    """Each paragraph begins with a comment, and so does each value in a section that has several
    of different kinds."""
    text = (CHART / "values.yaml").read_text()
    for paragraph in text.split("\n\n"):
        assert paragraph.startswith("#"), paragraph
    for section in ("image", "networkPolicy", "run"):
        lines = text[text.index(f"\n{section}:") :].split("\n\n", 1)[0].splitlines()
        for before, line in pairwise(lines):
            if re.match("  [a-zA-Z]+:", line) and line.strip() != "enabled: true":
                assert before.startswith("  #"), line


_EXAMPLE = re.compile(r"^```yaml\n(kubernetes:\n.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize("page", ["kubernetes.md", "private-clusters.md", "proxies.md"])
def test_examples_in_the_documents_render(page: str, tmp_path: Path) -> None:
    examples = _EXAMPLE.findall((PAGES / page).read_text())
    assert examples
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        values = read_yaml(file)[1]["kubernetes"]
        spec = pod(render({"run": RUN, **values}), "worker")["spec"]
        if "extraVolumes" in values:
            # As libpq demands of a key's file: 0440, and not 440.
            assert spec["volumes"][-1]["secret"]["defaultMode"] == 0o440


def test_the_references_names_stay() -> None:
    assert {"name", "tag"} <= set(DEFAULTS["image"])


@pytest.mark.parametrize(
    ("version", "on_the_server"), [("v3.4.2", []), ("v4.0.0", ["--server-side=false"])]
)
def test_how_helm_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, on_the_server: list[str]
) -> None:
    """Values are passed in a form that has one reading: ids and tags can look like numbers. And helm never
    needs more permissions than docs/how-to/private-clusters.md says."""
    fake = tmp_path / "helm"
    fake.write_text(
        f"#!/bin/sh\ntest $1 != version || {{ echo {version}; exit; }}\n"
        f"echo $* >{tmp_path}/arguments\ncat >{tmp_path}/values\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    place = Place("default", str(tmp_path / "kubeconfig"), "here")
    values = {"run": {**RUN, "id": "491133e5"}, "image": {"tag": "09953836"}}
    Helm(place).install(RELEASE, values)
    handed = (tmp_path / "values").read_text()
    assert json.loads(handed) == values
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:5] == ["install", RELEASE, str(CHART), "-f", "-"]
    assert [word for word in arguments if word.startswith("--server-side")] == on_the_server
