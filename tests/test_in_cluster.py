"""What runs the command line in a cluster: its image, and the examples of examples/in-cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes.config import incluster_config

from cli.commands.options import make_request
from cli.main import commands
from cli.plan.requests import REQUESTS
from cli.plan.target import ExecutorName
from cli.results.address import Address
from cli.run.cluster import Helm, Place
from cli.run.diagnosis import PERMISSIONS
from cli.run.experiments.session import open_session
from simulator import __version__
from tests.kubernetes.test_access import grants

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "in-cluster"
NAMESPACE = "benchmark"
_OF_OTHERS = ("PrometheusRule", "Application")
"""Kinds that Kubernetes doesn't define."""
_OLDEST = "1.25"
"""The first whose schemas the package has."""

Document = Mapping[str, Any]


def _read() -> dict[str, Any]:
    """`Kind/name` -> the object."""
    documents = [
        document
        for file in sorted(EXAMPLES.rglob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    objects = {
        f"{document['kind']}/{document['metadata']['name']}": document for document in documents
    }
    assert len(objects) == len(documents)
    return objects


OBJECTS = _read()
JOB, NIGHTLY = OBJECTS["Job/iotbench-insert"], OBJECTS["CronJob/iotbench-nightly"]
JOBS = {"job": JOB["spec"], "nightly": NIGHTLY["spec"]["jobTemplate"]["spec"]}
every_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.split("/")[0] not in _OF_OTHERS])
def test_objects_fit_their_schema(name: str) -> None:
    for version in (_OLDEST, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(dict(OBJECTS[name]), version, strict=True)
    assert OBJECTS[name]["metadata"]["namespace"] == NAMESPACE


def test_the_role_has_the_rights_that_the_command_needs_and_no_more() -> None:
    needed = {
        (group, resource + (f"/{subresource}" if subresource else ""), verb)
        for group, resource, subresource, verbs in PERMISSIONS
        for verb in verbs
    }
    assert grants(OBJECTS["Role/iotbench"]["rules"]) == needed
    binding = OBJECTS["RoleBinding/iotbench"]
    assert binding["roleRef"]["kind"] == "Role" and binding["roleRef"]["name"] == "iotbench"
    (subject,) = binding["subjects"]
    assert f"{subject['kind']}/{subject['name']}" in OBJECTS
    assert subject["namespace"] == NAMESPACE


@every_job
def test_a_job_is_made_once_and_ends(job: Document) -> None:
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["activeDeadlineSeconds"] > 0
    assert NIGHTLY["spec"]["concurrencyPolicy"] == "Forbid"


@every_job
def test_a_pod_meets_the_restricted_standard(job: Document) -> None:
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # The image's own user, which may write to the volumes.
    assert f"USER {pod['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text()
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]


@every_job
def test_what_a_pod_names_is_there(job: Document) -> None:
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert f"ServiceAccount/{pod['serviceAccountName']}" in OBJECTS
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert f"ConfigMap/{volumes['config']['configMap']['name']}" in OBJECTS
    claim = volumes["results"]["persistentVolumeClaim"]["claimName"]
    assert f"PersistentVolumeClaim/{claim}" in OBJECTS
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/etc/iotbench": "config", "/work": "results", "/tmp": "scratch"}
    # `results` is a folder of the one in which the command begins.
    assert "WORKDIR /work\n" in (ROOT / "Dockerfile").read_text()


def test_images_are_of_this_version() -> None:
    images = [job["template"]["spec"]["containers"][0]["image"] for job in JOBS.values()]
    assert set(images) == {f"registry.example.org/iot-database-benchmark-cli:{__version__}"}
    config = yaml.safe_load(OBJECTS["ConfigMap/iotbench"]["data"]["config.yaml"])
    assert config["kubernetes"]["image"]["tag"] == __version__


@every_job
def test_the_commands_are_the_tools_and_their_target_is_right(
    job: Document, tmp_path: Path
) -> None:
    words = list(job["template"]["spec"]["containers"][0]["args"])
    file = tmp_path / "config.yaml"
    file.write_text(OBJECTS["ConfigMap/iotbench"]["data"]["config.yaml"])
    (place,) = (word for word in words if word.startswith("--config="))
    assert place == "--config=/etc/iotbench/config.yaml"
    words[words.index(place)] = f"--config={file}"
    command = commands.get_command(commands.make_context("iotbench", ["targets"]), words[0])
    assert command is not None
    context = command.make_context(words[0], words[1:])
    session = open_session(make_request(context, REQUESTS[words[0]]))
    assert session.executor is ExecutorName.KUBERNETES
    assert session.place.namespace == NAMESPACE


def test_the_nightly_run_has_a_limit_and_goes_to_an_address() -> None:
    words = JOBS["nightly"]["template"]["spec"]["containers"][0]["args"]
    assert any(word.startswith("--limit=") for word in words)
    (output,) = (word.removeprefix("--output=") for word in words if word.startswith("--output="))
    assert str(Address(output)) == output
    environment = JOBS["nightly"]["template"]["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in environment] == ["AWS_REGION"]


def test_the_alert_means_the_jobs_that_are_here() -> None:
    (group,) = OBJECTS["PrometheusRule/iotbench"]["spec"]["groups"]
    failed, missing = (rule["expr"] for rule in group["rules"])
    assert "kube_job_status_failed{" in failed and f'namespace="{NAMESPACE}"' in failed
    pattern = re.search(r'job_name=~"([^"]*)"', failed)
    assert pattern is not None
    for name in (JOB["metadata"]["name"], f"{NIGHTLY['metadata']['name']}-29345670"):
        assert re.fullmatch(pattern[1], name)
    assert f'cronjob="{NIGHTLY["metadata"]["name"]}"' in missing


def test_argo_cd_finds_the_manifests() -> None:
    spec = OBJECTS["Application/iotbench"]["spec"]
    assert ROOT / spec["source"]["path"] == EXAMPLES / "manifests"
    assert spec["destination"]["namespace"] == NAMESPACE
    # A Job can't be changed: it is made anew by each sync.
    assert JOB["metadata"]["annotations"] == {
        "argocd.argoproj.io/hook": "PostSync",
        "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
    }


# --- the image ------------------------------------------------------------------------------------


def _copied() -> Iterator[str]:
    """What the Dockerfile copies from the folder."""
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            yield from line.split()[1:-1]


def test_the_build_has_what_the_image_and_the_wheel_are_made_of() -> None:
    included = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for name in included)
    assert {name for name in _copied() if name != "."} <= set(included)
    project = (ROOT / "pyproject.toml").read_text()
    shipped = re.findall(r'^"([\w.]+)" = "cli/shipped/', project, re.MULTILINE)
    assert {*shipped, "cli", "iotbench", "simulator", "pyproject.toml", "README.md"} <= set(
        included
    )


def test_the_image_has_pinned_versions_and_its_own_user() -> None:
    text = (ROOT / "Dockerfile").read_text()
    pinned = re.search(r"HATCHLING_VERSION=(\S+)", text)
    assert pinned is not None
    assert f'"hatchling=={pinned[1]}"' in (ROOT / "pyproject.toml").read_text()
    assert "--require-hashes -r /requirements.txt" in text
    assert re.search(r"ARG HELM_VERSION=\d+\.\d+\.\d+\n", text)
    other = (ROOT / "simulator" / "Dockerfile").read_text()
    for line in ("ARG PYTHON_VERSION=", "USER "):
        assert re.findall(f"^{line}.*$", text, re.MULTILINE) == re.findall(
            f"^{line}.*$", other, re.MULTILINE
        )
    assert text.rstrip().endswith('ENTRYPOINT ["iotbench"]')


def test_the_image_of_workers_has_the_licence() -> None:
    """Its folder is all that the build sees."""
    for name in ("LICENSE", "NOTICE"):
        assert (ROOT / "simulator" / name).read_bytes() == (ROOT / name).read_bytes()


def test_make_image_builds_both() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.split("\nimage:\n", 1)[1].split("\n\n", 1)[0]
    assert "-t iot-database-benchmark:$$version simulator && " in recipe
    assert "-t iot-database-benchmark-cli:$$version .; exit;" in recipe


# --- the command in a pod -------------------------------------------------------------------------


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a pod has of its account, and no kubeconfig."""
    for name, text in (("TOKEN", "the-token"), ("CERT", "a certificate")):
        file = tmp_path / name
        file.write_text(text)
        monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", str(file))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_in_a_pod_the_client_has_the_pods_account(pod: Path) -> None:
    client = Place(NAMESPACE).make_client()
    assert client.configuration.host == "https://10.0.0.1:443"
    headers: dict[str, str] = {}
    client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    assert headers == {"authorization": "bearer the-token"}


def test_in_a_pod_helm_is_told_of_no_context(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig and a context it takes the pod's account, too."""
    helm = pod / "helm"
    helm.write_text(f'#!/bin/sh\necho "$@" "[$KUBECONFIG]" > {pod}/told\n')
    helm.chmod(0o700)
    monkeypatch.setenv("PATH", str(pod), prepend=":")
    Helm(Place(NAMESPACE)).uninstall("iotb-1")
    assert (pod / "told").read_text() == f"uninstall iotb-1 --namespace {NAMESPACE} []\n"
