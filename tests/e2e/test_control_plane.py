"""The control plane of these tests itself: its fake nodes behave, it survives what it should and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for

ROOT = Path(__file__).parents[2]
NODE = "kept-by-kwok"


@pytest.fixture
def namespace_with_a_node(control_plane: ControlPlane, node: str, namespace: Namespace) -> Namespace:
    return namespace


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    hardware = [fleet.device_class(), *fleet.gpu_node(NODE, gpus=1)]
    with fleet.installed(control_plane.client(), hardware):
        yield NODE


def phase(namespace: Namespace, pod: str) -> str:
    found: str = namespace.pod(pod)["status"]["phase"]
    return found


def here(name: str, **annotations: str) -> fleet.Manifest:
    """A pod on our node, with annotations in the spelling of Python."""
    spelled = {f"test.muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return workloads.pod(name, annotations=spelled, nodeSelector={"kubernetes.io/hostname": NODE})


def test_a_bound_pod_runs_until_its_runtime_is_over(namespace_with_a_node: Namespace) -> None:
    namespace = namespace_with_a_node
    namespace.create(here("brief", runtime="3s"), here("endless"))

    for name in ("brief", "endless"):
        eventually(lambda name=name: phase(namespace, name) == "Running", what=f"{name} runs")  # type: ignore[misc]
    eventually(lambda: phase(namespace, "brief") == "Succeeded", what="the brief one succeeds")
    assert phase(namespace, "endless") == "Running"


def test_a_running_pod_finishes_when_told_to(namespace_with_a_node: Namespace) -> None:
    namespace = namespace_with_a_node
    namespace.create(here("worker", runtime="3600s"))
    eventually(lambda: phase(namespace, "worker") == "Running", what="it runs")

    namespace.client.merge_patch(f"{namespace.pods}/worker", {"metadata": {"annotations": {workloads.FINISH: "true"}}})

    eventually(lambda: phase(namespace, "worker") == "Succeeded", what="it succeeds")


def test_a_pod_that_never_starts_is_bound_and_pending_and_can_be_deleted(namespace_with_a_node: Namespace) -> None:
    namespace = namespace_with_a_node
    namespace.create(here("stuck", never_start="true"))

    assert namespace.bound("stuck")["spec"]["nodeName"] == NODE
    holds_for(3.0, lambda: phase(namespace, "stuck") == "Pending", what="it stays pending")
    namespace.client.delete(f"{namespace.pods}/stuck")
    eventually(lambda: namespace.client.find(f"{namespace.pods}/stuck") is None, what="it is gone")


def test_deleting_a_running_pod_does_not_wait_for_its_grace_period(namespace_with_a_node: Namespace) -> None:
    namespace = namespace_with_a_node
    namespace.create(here("worker"))
    eventually(lambda: phase(namespace, "worker") == "Running", what="it runs")

    namespace.client.delete(f"{namespace.pods}/worker")

    eventually(lambda: namespace.client.find(f"{namespace.pods}/worker") is None, what="it is gone", within=20)


@pytest.mark.parametrize("hard", [False, True], ids=["asked to end", "killed"])
def test_an_api_server_that_restarts_keeps_its_data_and_its_address(kubernetes: str, hard: bool) -> None:
    with ControlPlane(kubernetes) as control_plane:
        before = control_plane.server
        client = control_plane.client()
        client.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})

        control_plane.restart_apiserver(hard=hard)

        assert control_plane.server == before
        assert client.get("/api/v1/namespaces/kept")["status"]["phase"] == "Active"


def test_a_scheduler_that_has_ended_by_itself_is_started_again(
    control_plane: ControlPlane, namespace_with_a_node: Namespace
) -> None:
    control_plane.revive()  # what an earlier test of the run has killed the API server of
    os.kill(control_plane.pid("kube-scheduler"), signal.SIGKILL)

    eventually(lambda: "kube-scheduler" in control_plane.revive(), what="it has ended")

    namespace_with_a_node.create(here("late"))
    eventually(lambda: phase(namespace_with_a_node, "late") == "Running", what="a pod is bound")


def test_users_have_their_groups_and_no_rights(control_plane: ControlPlane) -> None:
    said = control_plane.kubectl("auth", "whoami", "--output=jsonpath={.status.userInfo.groups}", user="muster")

    assert "muster" in said
    with pytest.raises(ApiError, match='User "muster" cannot list resource "pods"'):
        control_plane.client("muster").items("/api/v1/pods")


def test_a_stranger_and_a_server_with_another_certificate_are_refused(control_plane: ControlPlane) -> None:
    stranger = control_plane.client()
    with pytest.raises(ApiError, match="401"):
        type(stranger)(server=stranger.server, token="guessed", tls=stranger.tls).get("/api/v1/pods")
    refused = subprocess.run(
        [*control_plane.kubectl_command, "--server", control_plane.server, "--token", "any", "get", "pods"],
        env={**os.environ, "KUBECONFIG": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "certificate signed by unknown authority" in refused.stderr


OWNER = """
import sys, threading, time
from tests.controlplane import ControlPlane

control_plane = ControlPlane(sys.argv[1])
starter = threading.Thread(target=control_plane.start)
starter.start()
starter.join()
print(control_plane.kubeconfig.parents[1], control_plane.pid("etcd"), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_a_control_plane_whose_owner_dies_leaves_nothing(kubernetes: str, end: signal.Signals) -> None:
    """Started from a thread that has ended: a death signal tied to that thread would have killed it too soon."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, kubernetes], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder, etcd = owner.stdout.readline().split()
        group = os.getpgid(int(etcd))
        time.sleep(2)
        assert len(living(group)) == 6, "five programs and their leash, after the thread that started them has ended"
        owner.send_signal(end)

    eventually(lambda: not living(group), what="all programs have ended")
    assert not Path(folder).exists()


def living(group: int) -> list[str]:
    """List the processes of a group that are not merely waiting to be reaped."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [args for pgid, state, args in rows if int(pgid) == group and not state.startswith("Z")]


def test_up_prints_a_working_kubeconfig_and_ends_on_ctrl_c(kubernetes: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as output:
        up = subprocess.Popen(
            [sys.executable, "-m", "tests.controlplane", "up", "--k8s", kubernetes, "--fleet"], cwd=ROOT, stdout=output
        )
    try:
        eventually(lambda: "alias kubectl=" in said.read_text(), what="it is up", within=180)
        lines = said.read_text()
        script = f"{lines[lines.index('export') :]}\nkubectl get nodes --output=name"
        nodes = subprocess.run(
            ["bash", "-O", "expand_aliases", "-c", script], capture_output=True, text=True, check=True
        ).stdout
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(30)

    assert nodes.split() == [f"node/node-{number}" for number in range(1, 7)]
    assert code == 0
    kubeconfig = next(line.split("=", 1)[1] for line in lines.splitlines() if line.startswith("export"))
    assert not Path(kubeconfig).parents[1].exists()
