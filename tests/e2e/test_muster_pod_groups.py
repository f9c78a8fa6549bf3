"""PodGroups of Kubernetes itself, in the shape that each release serves, with a claim that the whole group shares.

Both releases are seen in every run, unless K8S chooses one: what they serve is not the same, and is not the default.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, building, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import herds, musters
from tests.e2e.herds import Herd
from tests.e2e.teams import GROUP
from tests.standins import an_object

VERSIONS = {"1.36": "v1alpha2", "1.37": "v1beta1"}
GATES: dict[str, dict[str, bool]] = {
    "1.36": {"GenericWorkload": True, "GangScheduling": True, "DRAWorkloadResourceClaims": True},
    "1.37": {"GenericWorkload": True, "DRAWorkloadResourceClaims": True},
}

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.since("1.36", "there are no PodGroups")]


@pytest.fixture(scope="module", params=[os.environ["K8S"]] if os.environ.get("K8S") else building.VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    """The minor version of Kubernetes."""
    return str(request.param)


@pytest.fixture(scope="module")
def herd(release: str) -> Iterator[Herd]:
    """A control plane of its own, since what it serves is not served by default."""
    building.build(release)
    served = {f"scheduling.k8s.io/{VERSIONS[release]}": True}
    with (
        ControlPlane(release, feature_gates=GATES[release], runtime_config=served) as control_plane,
        musters.running(control_plane) as muster,
        herds.of(control_plane, muster, "groups", nodes=2, devices=4) as herd,
    ):
        yield herd


def a_group(release: str, name: str, count: int, **spec: Any) -> Manifest:
    return {
        "apiVersion": f"scheduling.k8s.io/{VERSIONS[release]}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }


def a_pod(name: str, group: str, **more: Any) -> Manifest:
    return workloads.pod(name, template="one", schedulingGroup={"podGroupName": group}, **more)


def test_a_pod_group_starts_whole_and_is_another_gang_when_it_is_made_again(release: str, herd: Herd) -> None:
    pods = [a_pod(f"trio-{number}", "trio") for number in range(3)]
    herd.all(pods[:2])
    herd.wait_held("PodGroup trio (scheduling.k8s.io), which the pods name, is not there", "trio-0", "trio-1")

    made = herd.put(a_group(release, "trio", 3))
    herd.wait_held("2 of 3 pods exist", "trio-0", "trio-1", of=made)
    herd.put(pods[2])
    first = herd.wait_running("trio-0", "trio-1", "trio-2")
    herd.clear(made)

    again = herd.put(a_group(release, "trio", 3))
    herd.all(pods)
    second = herd.wait_running("trio-0", "trio-1", "trio-2", other_than=first)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    herd.clear(again)


def test_a_claim_of_the_group_is_charged_once(release: str, herd: Herd) -> None:
    claims = [{"name": "shared", "resourceClaimTemplateName": "one"}]
    group = herd.put(a_group(release, "pair", 2, resourceClaims=claims))
    for number in range(2):
        pod = workloads.pod(f"pair-{number}", schedulingGroup={"podGroupName": "pair"})
        pod["spec"]["resourceClaims"] = claims
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "shared"}]}
        herd.put(pod)

    herd.wait_running("pair-0", "pair-1")
    herd.lab.wait_used(gpus=(0, 1))
    (claim,) = herd.lab.client.items(herd.lab.namespace.claims)
    assert [one["resource"] for one in claim["status"]["reservedFor"]] == ["podgroups"]
    herd.clear(group)
    assert herd.lab.muster.wrong_books() is None


def test_a_job_that_is_held_as_a_whole_is_planned_with_the_claim_of_its_group(release: str, herd: Herd) -> None:
    lab = herd.lab
    lab.client.merge_patch(f"{GROUP}/queues/{lab.team.queue}", {"spec": {"holdAt": "Workload", "stopPolicy": "Hold"}})
    own, shared = ({"name": name, "resourceClaimTemplateName": "one"} for name in ("own", "shared"))
    template = herd.template()
    template["spec"] |= {"resourceClaims": [own, shared], "schedulingGroup": {"podGroupName": "ring"}}
    template["spec"]["containers"][0]["resources"] = {"claims": [{"name": "own"}, {"name": "shared"}]}
    job = an_object("batch/v1", "Job", "ring", parallelism=2, completions=2, template=template)
    eventually(lambda: _is_held(herd, job), what="Jobs are held")
    group = herd.put(a_group(release, "ring", 2, resourceClaims=[shared]))

    made = herd.put(job)
    gang = herd.wait_held("is stopped", of=group)
    assert (gang["status"]["expected"], gang["status"].get("pods", 0)) == (2, 0)
    lab.stop_queue("None")

    herd.wait_running(*herd.pods_of(made, 2))
    lab.wait_used(gpus=(0, 3))
    assert len(lab.client.items(lab.namespace.claims)) == 3
    assert not herd.told("is not what the template of its workload said")
    herd.clear(made, group)
    assert lab.muster.wrong_books() is None


def _is_held(herd: Herd, job: Manifest) -> bool:
    """Whether a Job would be suspended; an answer from before the queue was changed refuses it."""
    try:
        answer = herd.lab.client.create(f"{herd.lab.team.jobs}?dryRun=All", job)
    except ApiError:
        return False
    return bool(answer["spec"].get("suspend"))
