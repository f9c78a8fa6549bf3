"""Pods that need what only some nodes declare (`status.declaredFeatures`)."""

from typing import Any

import pytest

from admission.api.kubernetes import nodes, pods
from tests.unit.dra.clusters import a_cluster, a_pod, places, refused

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a container that restarts all others": (
        {"containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
        ("RestartAllContainersOnContainerExits",),
    ),
    "another action": ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ()),
    "a user namespace in the host's network": (
        {"hostNetwork": True, "hostUsers": False},
        ("UserNamespacesHostNetworkSupport",),
    ),
    "the host's network alone": ({"hostNetwork": True}, ()),
    "options of a bind mount": (
        {"initContainers": [{"name": "i", "volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}]},
        ("VolumeBindMountOptions",),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES)
def test_a_pod_needs_features(spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert pods.decode({"metadata": {"name": "p"}, "spec": spec}).features == expected


def test_a_pod_goes_where_its_feature_is_declared() -> None:
    builder = a_cluster().node("a", gpus=1).node("b", gpus=1)
    builder.nodes[1]["status"]["declaredFeatures"] = ["UserNamespacesHostNetworkSupport"]
    pod = a_pod("p", 1, hostNetwork=True, hostUsers=False)

    assert places(builder.plan(pod)) == {"p": "b"}
    builder.nodes[1]["status"] = {}
    assert "does not declare feature UserNamespacesHostNetworkSupport" in refused(builder.plan(pod)).message
    assert nodes.decode({"metadata": {"name": "n"}}).features == frozenset()
