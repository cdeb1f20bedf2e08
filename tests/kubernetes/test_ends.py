"""A run that is ended from this side: signals, a machine that crashes, an API server that is lost; and
`clean`, which removes what such an end leaves."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from cli.run.cluster import RUN_LABEL
from cli.system.installation import describe_user
from tests.e2e.tool import Running, eventually

from .cluster import Cluster, Namespace
from .proxy import Proxy
from .test_access import documented_rules, use
from .tool import ClusterTool

pytestmark = pytest.mark.cluster

LONG = ("--num-inserts", 100_000)
"""A run of 1,000 s."""


def test_signal_in_mid_run(tool: ClusterTool, namespace: Namespace) -> None:
    """Any signal will do: which ones there are is tested on local processes."""
    number = signal.SIGTERM
    tool.may_lack_results = True
    running = tool.start_insert(*LONG)
    running.await_err("running,", 60)
    began = time.monotonic()
    running.send_group(number)
    done = running.wait()
    assert done.status == 128 + number, done
    assert time.monotonic() - began < 15
    assert "nothing is left running" in done.err
    assert not [name for name in namespace.objects() if name.startswith("secret/")]


def test_signals_while_it_starts_and_ends(tool: ClusterTool, namespace: Namespace) -> None:
    """The first comes while helm installs, the second while it removes."""
    tool.may_lack_results = True
    running = tool.start_insert(*LONG)
    eventually(namespace.objects, "the release's first object", 30, 0.05)
    running.send_group(signal.SIGINT)
    time.sleep(0.3)
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 128 + signal.SIGINT, done


def crash(tool: ClusterTool) -> None:
    """Kill the tool during the run, and do what a machine does that starts again."""
    running = tool.start_insert(*LONG)
    running.await_err("running,", 60)
    running.send_group(signal.SIGKILL)
    running.wait()
    for file in tool.temporary.iterdir():
        # The client library keeps certificates in it while it runs.
        file.unlink()


def test_clean_removes_what_a_crash_left(tool: ClusterTool, namespace: Namespace) -> None:
    """A user who may do no more than the documented Role can clean up their own runs."""
    tool.may_lack_results = True
    use(tool, documented_rules())
    nothing = tool.run_here("clean", "--config", tool.config).ok()
    assert f"Nothing is left in namespace {namespace.name}" in nothing.out

    crash(tool)
    run_id = namespace.pods()[0].metadata.labels[RUN_LABEL]

    shown = tool.run("clean", "--config", tool.config, "--yes").ok()
    assert run_id in shown.out and "2 pods at work" in shown.out and "--running" in shown.out
    assert describe_user() in shown.out
    assert len(namespace.await_running("worker") + namespace.await_running("collector")) == 2

    text = tool.run_here("clean", "--config", tool.config, "--running").error(2)
    assert "--yes" in text
    unknown = tool.run_here("clean", "--config", tool.config, "12345678", "--yes").error(2)
    assert "12345678" in unknown and namespace.name in unknown

    # The next run names the one command that removes it.
    after = tool.insert()
    named = re.search(r"if nobody needs it, remove it with python run.py (clean .*)", after.err)
    assert named and describe_user() in after.err
    assert after.err.count("note: run ") == 1
    removed = tool.run_here(*named[1].split(), "--config", tool.config, "--yes").ok()
    assert f"Removed {run_id}" in removed.out
    assert not [name for name in namespace.objects() if name.startswith("secret/")]


def test_clean_removes_what_has_no_release(tool: ClusterTool, namespace: Namespace) -> None:
    """Someone has deleted helm's Secret, or helm was killed before it wrote it."""
    tool.may_lack_results = True
    use(tool, documented_rules())
    crash(tool)
    core = namespace.cluster.core
    core.delete_collection_namespaced_secret(namespace.name, label_selector="owner=helm")
    tool.run_here("clean", "--config", tool.config, "--running", "--yes").ok()
    check_what_is_being_deleted(tool, namespace)


def check_what_is_being_deleted(tool: ClusterTool, namespace: Namespace) -> None:
    """It needs no confirmation: here a Secret that only its finalizer still holds."""
    core = namespace.cluster.core
    meta = {"name": "held", "labels": {RUN_LABEL: "abcdef12"}, "finalizers": ["example.org/held"]}
    core.create_namespaced_secret(namespace.name, {"metadata": meta})
    core.delete_namespaced_secret("held", namespace.name)
    try:
        cleaned = tool.run_here("clean", "--config", tool.config).ok()
        assert "Nothing is left" in cleaned.out
    finally:
        core.patch_namespaced_secret("held", namespace.name, {"metadata": {"finalizers": None}})


@pytest.fixture
def proxy(cluster: Cluster, tool: ClusterTool) -> Iterator[Proxy]:
    """A proxy between the tool and the API server."""
    with cluster.proxied() as (proxy, document):
        tool.kubeconfig = str(tool.write_kubeconfig(document))
        yield proxy


def in_its_window(tool: ClusterTool, *arguments: object) -> Running:
    running = tool.start_insert(*arguments, impatient=True)
    running.await_err("running,", 60)
    return running


def test_api_server_lost_for_a_while(tool: ClusterTool, proxy: Proxy) -> None:
    running = in_its_window(tool, "--num-inserts", 500)
    proxy.cut()
    time.sleep(1.5)
    proxy.mend()
    tool.fine(running.wait())


def test_api_server_lost_until_the_run_is_over(tool: ClusterTool, proxy: Proxy) -> None:
    """Its collector keeps the report."""
    running = tool.start_talkative("--num-inserts", 300)
    running.await_err("running,", 60)
    proxy.cut()
    time.sleep(5.0)
    proxy.mend()
    done = tool.fine(running.wait())
    assert "the collector has been unreachable for" in done.err
    assert "its report is waited for" in done.err
    assert "the collector answers again, after" in done.err


def test_api_server_lost_for_long(tool: ClusterTool, proxy: Proxy, namespace: Namespace) -> None:
    running = in_its_window(tool, *LONG)
    proxy.cut()
    began = time.monotonic()
    text = running.wait().error(1)
    assert time.monotonic() - began < 30
    assert "is left in the cluster" in text
    release = next(name for name in namespace.objects() if name.startswith("service/"))
    assert release.removeprefix("service/") in text
    assert f"python run.py clean --namespace {namespace.name}" in text
    assert "pod/" in "".join(namespace.objects())

    proxy.mend()
    cleaned = tool.run_here(
        "clean", "--namespace", namespace.name, "--running", "--yes", "--config", tool.config
    )
    cleaned.ok()
    assert "Removed" in cleaned.out


def test_api_server_that_swallows_everything(
    tool: ClusterTool, proxy: Proxy, namespace: Namespace
) -> None:
    """Nothing is refused and nothing is answered: every request ends by a time limit of its own."""
    running = in_its_window(tool, *LONG)
    proxy.stall()
    began = time.monotonic()
    text = running.wait().error(1)
    assert time.monotonic() - began < 45
    assert "has been unreachable" in text and "is left in the cluster" in text
    proxy.mend()
    place = ("--namespace", namespace.name, "--config", tool.config)
    assert "Removed" in tool.run_here("clean", *place, "--running", "--yes").ok().out


def test_second_signal_does_not_wait_for_a_server_that_swallows_everything(
    tool: ClusterTool, proxy: Proxy, namespace: Namespace
) -> None:
    running = in_its_window(tool, *LONG)
    proxy.stall()
    for _ in range(2):
        running.send_group(signal.SIGINT)
        time.sleep(0.3)
    assert "is left in the cluster" in running.wait().error(1)
    proxy.mend()
    place = ("--namespace", namespace.name, "--config", tool.config)
    assert "Removed" in tool.run_here("clean", *place, "--running", "--yes").ok().out


def test_api_server_lost_while_it_cleans_up(tool: ClusterTool, proxy: Proxy) -> None:
    """It is back before patience ends: all is removed."""
    tool.may_lack_results = True
    running = in_its_window(tool, *LONG)
    proxy.cut()
    running.send(signal.SIGINT)
    time.sleep(1.0)
    proxy.mend()
    assert running.wait().status == 128 + signal.SIGINT


def test_no_api_server(tool: ClusterTool, proxy: Proxy) -> None:
    tool.may_lack_results = True
    proxy.cut()
    for command in (("insert", "--target", "hole"), ("clean",), ("doctor",)):
        done = tool.run_here(*command, "--config", tool.config)
        assert done.status in (1, 2), done
        assert "defect" not in done.err and "Traceback" not in done.err, done
        assert "127.0.0.1" in done.err + done.out and "--context" in done.err + done.out, done
