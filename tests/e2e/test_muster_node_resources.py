"""What pods request of nodes on one quota: gangs without claims, what others add, and pods that are resized."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import later_webhooks
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab, plain
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, job


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A team with a quota of four credits: one for a core, and three for a GPU."""
    driver = f"{namespace.name}.test"
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver) as lab:
        lab.device_class()
        meter = lab.meter("credits", expression={"cel": "3"})
        lab.client.merge_patch(f"{GROUP}/meters/{meter}", {"spec": {"resources": [{"name": "cpu"}]}})
        lab.node("n", plain(4))
        lab.found({meter: "4"})
        yield lab


def requested(lab: Lab, name: str, kind: str) -> list[tuple[dict[str, int], int]]:
    """Return what the books say that pods of a Job take of nodes, and what that costs."""
    (meter,) = lab.meters
    rows = lab.entries(name, kind)
    return [(one["classes"], int(one["charge"][meter])) for row in rows for one in json.loads(row["holdings"])]


def test_a_gang_without_claims_waits_starts_is_charged_and_gives_back_as_stored(lab: Lab) -> None:
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m"}}]}
    lab.client.create(
        f"/api/v1/namespaces/{lab.namespace.name}/limitranges",
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": limits},
    )

    lab.submit("train", pods=2, resources={"cpu": "2"})
    lab.team.wait_running("train", 2)
    lab.wait_used(credits=(0, 4))
    assert len(set(lab.pinned_to("train"))) == 1
    assert lab.allocated("train") == {}
    assert requested(lab, "train", "reserve") == requested(lab, "train", "settle") == [({"cpu": 2000}, 2)] * 2
    lab.client.create(lab.team.jobs, bare("next", pods=1))
    hold = lab.team.wait_held("next", "QuotaExceeded")
    assert (hold["details"]["left"], hold["details"]["needed"]) == ("0", "1")

    lab.team.finish("train")
    lab.team.wait_running("next", 1)
    lab.wait_used(credits=(0, 1))
    assert requested(lab, "next", "settle") == [({"cpu": 500}, 1)], "as the LimitRange has it"
    with pytest.raises(Exception, match="NeverFits"):
        lab.client.create(lab.namespace.pods, alone("large", cpu="4001m"))
    lab.end("next")


def test_what_another_webhook_adds_after_musters_is_counted_as_stored(lab: Lab) -> None:
    sidecar = {"name": "proxy", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1500m"}}}
    with later_webhooks.patching(
        lab.namespace, [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]
    ) as found:
        dry_run = f"{lab.namespace.pods}?dryRun=All"
        eventually(
            lambda: lab.client.create(dry_run, alone("probe", cpu="1")) and found,
            what="the API server calls the other webhook",
        )
        assert found[-1] == ["muster.dev/admission"], "it is called after Muster's"
        lab.client.create(lab.namespace.pods, alone("meshed", cpu="1"))

    lab.namespace.bound("meshed")
    lab.wait_used(credits=(0, 3))
    assert requested(lab, "meshed", "reserve") == requested(lab, "meshed", "settle") == [({"cpu": 2500}, 3)]
    lab.client.delete(f"{lab.namespace.pods}/meshed")


def bare(name: str, *, pods: int) -> Any:
    """A Job whose pods say nothing of resources."""
    made = job(name, pods=pods, template="-", annotations={})
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = []
    spec["containers"][0].pop("resources")
    return made


def alone(name: str, *, cpu: str) -> Any:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def test_a_running_pod_does_not_grow_beyond_the_quota_of_its_queue(lab: Lab) -> None:
    """No kubelet is there, so the test says what it would have given."""
    lab.client.create(lab.namespace.pods, alone("grows", cpu="1"))
    lab.namespace.bound("grows")
    lab.wait_used(credits=(0, 1))
    given(lab, "grows", cpu="1")
    lab.submit("other", pods=1, resources={"cpu": "2"})
    lab.team.wait_running("other", 1)
    lab.wait_used(credits=(0, 3))

    assert "NeverFits" in refused(resize, lab, "grows", cpu="5")
    assert "OverQuota" in refused(resize, lab, "grows", cpu="3")
    resize(lab, "grows", cpu="2")
    assert lab.used(lab.meters[0]) == (0, 3), "the kubelet has not given it yet"
    given(lab, "grows", cpu="2")
    lab.wait_used(credits=(0, 4))

    resize(lab, "grows", cpu="1")
    given(lab, "grows", cpu="1")
    lab.wait_used(credits=(0, 3))
    kinds = [row["kind"] for row in lab.muster.entries(f"{lab.namespace.name}/grows", "adjust")]
    assert len(kinds) == 2
    lab.client.delete(f"{lab.namespace.pods}/grows")
    lab.end("other")


def resize(lab: Lab, name: str, *, cpu: str) -> None:
    change = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    lab.control_plane.kubectl(
        "patch", "pod", name, "-n", lab.namespace.name, "--subresource=resize", "-p", json.dumps(change)
    )


def given(lab: Lab, name: str, *, cpu: str) -> None:
    """Write into the pod's status what a kubelet that has given it so much CPU writes."""

    def written() -> bool:
        (status,) = lab.namespace.pod(name)["status"].get("containerStatuses") or [None]
        if status is None:
            return False
        status |= {"allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
        lab.client.merge_patch(f"{lab.namespace.pods}/{name}/status", {"status": {"containerStatuses": [status]}})
        return True

    eventually(written, what=f"{name} has a status")
