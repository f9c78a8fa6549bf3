"""Bad gangs of many kinds in one queue with good ones: each waits with its reason, the good ones start, and so do the
bad ones when they are mended.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests import standins
from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, teams
from tests.e2e.intruders import hold_of
from tests.e2e.labs import Lab, exactly, plain
from tests.e2e.musters import ROOT, Muster
from tests.e2e.teams import GROUP

DRIVER = "bad1.test"
KEEP = "example.org/keep"


muster = fixtures.muster(fence=[DRIVER])


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=DRIVER) as lab:
        yield lab
        for collection in (namespace.pods, namespace.claims):
            for found in namespace.client.items(collection):
                release(lab, f"{collection}/{found['metadata']['name']}")


def release(lab: Lab, path: str) -> None:
    """Take our own finalizer from an object, if it is there."""
    found = lab.client.find(path)
    left = [name for name in (found or {}).get("metadata", {}).get("finalizers", []) if name != KEEP]
    if found is not None:
        lab.client.merge_patch(path, {"metadata": {"finalizers": left or None}})


def like(lab: Lab, what: str) -> dict[str, Any]:
    """Ask for devices that say what they are."""
    return {"selectors": [{"cel": {"expression": f"device.attributes['{lab.driver}'].what == '{what}'"}}]}


def a_pool(lab: Lab, what: str, *slices: list[str], count: int) -> None:
    """A node with a pool of so many slices, of which these are there."""
    name = lab.node(what, [])
    made = []
    for number, devices in enumerate(slices):
        listed = [{"name": one, "attributes": {"what": {"string": what}}} for one in devices]
        piece = fleet.resource_slice(f"{name}-{number}", listed, driver=lab.driver)
        piece["spec"].update({"nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": count}})
        made.append(piece)
    lab.install(*made)


def a_gang_of(gang: str, size: str) -> dict[str, Any]:
    return {"labels": {names.GANG: gang}, "annotations": {names.GANG_SIZE: size} if size else {}}


HOLDS = {
    "few": ("GangIncomplete", "2 of 3 pods exist; the gang starts with all of them (muster.dev/gang-size of its pods"),
    "unsized": ("GangIncomplete", "nobody has said how large gang unsized is"),
    "differ": ("PolicyViolation", "its pods say different sizes (2, 3)"),
    "lost": ("WaitingForClaims", "pod lost, claim gpu: ResourceClaim NAMESPACE/lost does not exist; create it"),
    "theirs": ("WaitingForClaims", "belongs to pod few-0 of another gang and goes with it"),
    "ending": ("WaitingForClaims", f"ResourceClaim NAMESPACE/ending is being deleted (finalizers {KEEP})"),
    "bare": ("WaitingForClaims", "ResourceClaimTemplate NAMESPACE/none does not exist; create it"),
    "classless": ("NoFeasiblePlacement", "missing.test"),
    "twice": ("NoFeasiblePlacement", "its driver has to mend its slices"),
    "half": ("PoolIncomplete", "is incomplete"),
    "nowhere": ("NoFeasiblePlacement", "satisfies the selectors"),
    "doomed": ("GangIncomplete", "1 of 2 pods exist"),
    "changed": ("NoFeasiblePlacement", "needs 9 devices"),
    "round": ("GangIncomplete", "circle or on and on (Job round → Job other → Job round)"),
}


def submit_all(lab: Lab) -> None:
    """Submit one bad gang after the other; the API server and the webhook take all of these."""
    space, a_pod = lab.namespace, workloads.pod
    space.create(workloads.claim_template("one", exactly(lab)))
    for number in range(2):
        space.create(a_pod(f"few-{number}", template="one", **a_gang_of("few", "3")))
    space.create(a_pod("unsized", template="one", **a_gang_of("unsized", "")))
    for size in ("2", "3"):
        space.create(a_pod(f"differ-{size}", template="one", **a_gang_of("differ", size)))
    space.create(a_pod("lost", claim="lost"))
    space.create(a_pod("theirs", claim=space.claim_of("few-0")["metadata"]["name"]))
    ending = workloads.claim("ending", exactly(lab))
    ending["metadata"]["finalizers"] = [KEEP]
    space.create(ending)
    lab.client.delete(f"{space.claims}/ending")
    space.create(a_pod("ending", claim="ending"), a_pod("bare", template="none"))
    asks = {
        "classless": exactly(lab, deviceClassName="missing.test"),
        "twice": exactly(lab, **like(lab, "twice")),
        "half": exactly(lab, **like(lab, "half")),
        "nowhere": exactly(lab, **like(lab, "nowhere")),
    }
    for name, wanted in asks.items():
        space.create(workloads.claim_template(name, wanted), a_pod(name, template=name))
    for number in range(2):
        doomed = a_pod(f"doomed-{number}", template="one", **a_gang_of("doomed", "2"))
        doomed["metadata"]["finalizers"] = [KEEP] if number else []
        space.create(doomed)
    lab.client.delete(f"{space.pods}/doomed-1?gracePeriodSeconds=0")
    in_a_circle(lab, "round", "other")
    lab.submit("changed", pods=1, request=exactly(lab, 9, **like(lab, "plain")))


def in_a_circle(lab: Lab, first: str, second: str) -> None:
    """Submit a Job that another one has made, which that one has made."""
    made = {}
    for name in (first, second):
        job = teams.job(name, pods=1, template="one", annotations={})
        made[name] = lab.client.create(lab.team.jobs, {**job, "spec": {**job["spec"], "suspend": True}})
    for name, other in ((first, second), (second, first)):
        owner = standins.owner({"apiVersion": "batch/v1", "kind": "Job", **made[other]})
        lab.client.merge_patch(f"{lab.team.jobs}/{name}", {"metadata": {"ownerReferences": [owner]}})
    lab.client.merge_patch(f"{lab.team.jobs}/{first}", {"spec": {"suspend": False}})


def test_bad_gangs_wait_with_their_reasons_and_stop_nobody(lab: Lab) -> None:
    lab.node("one", plain(8, attributes={"what": {"string": "plain"}}))
    a_pool(lab, "twice", ["gpu-0"], ["gpu-0"], count=2)
    a_pool(lab, "half", ["gpu-0"], count=2)
    lab.device_class()
    lab.meter("gpus", count={})
    lab.found(unmeteredClasses="Allow")
    submit_all(lab)
    space = lab.namespace
    eventually(lambda: lab.team.pods("changed"), what="the Job has made its pod")
    space.claim_of(lab.team.pods("changed")[0]["metadata"]["name"])

    lab.submit("good", pods=4, request=exactly(lab))
    lab.wait_running_as_planned("good", 4)

    for name, (reason, says) in HOLDS.items():
        said = says.replace("NAMESPACE", space.name)
        eventually(
            lambda: hold_of(lab, name).get("reason") == reason and said in hold_of(lab, name)["message"],  # noqa: B023
            what=lambda: f"{name} is held with {reason}: {said}; it has {hold_of(lab, name)}",  # noqa: B023
        )
    lab.wait_used(gpus=(0, 4))

    # A template that is made anew changes nothing for a claim that was made from it before.
    lab.client.delete(f"{space.templates}/changed")
    space.create(workloads.claim_template("changed", exactly(lab)))
    lab.submit("next", pods=4, request=exactly(lab))
    lab.wait_running_as_planned("next", 4)
    assert "needs 9 devices" in hold_of(lab, "changed")["message"]
    lab.end("good", "next")

    # Mended, each of them starts.
    space.create(workloads.pod("few-2", template="one", **a_gang_of("few", "3")), workloads.claim("lost", exactly(lab)))
    for pod in ("few-0", "few-1", "few-2", "lost"):
        space.bound(pod)
    release(lab, f"{space.claims}/ending")
    eventually(lambda: lab.client.find(f"{space.claims}/ending") is None, what="the claim is gone")
    space.create(workloads.claim("ending", exactly(lab)), workloads.claim_template("none", exactly(lab)))
    lab.client.delete(f"{space.pods}/{lab.team.pods('changed')[0]['metadata']['name']}?gracePeriodSeconds=0")
    for pod in ("ending", "bare"):
        space.bound(pod)
    lab.team.wait_running("changed", 1)


REFUSED = {"no number": "two", "none": "0", "less than none": "-1", "a thousand million": "1000000000"}


@pytest.mark.parametrize("size", REFUSED.values(), ids=REFUSED)
def test_a_size_that_no_gang_can_have_is_refused_at_the_door(lab: Lab, size: str) -> None:
    lab.found()

    with pytest.raises(ApiError, match=f"muster.dev/gang-size is '{size}'; write a whole number from 1 to 10000"):
        lab.namespace.create(workloads.pod("bad", **a_gang_of("bad", size)))
    gang: Manifest = {"apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "bad"}}
    gang["spec"] = {"queue": lab.team.queue, "size": 10**9}
    with pytest.raises(ApiError, match=r"spec\.size"):
        lab.client.create(f"{GROUP}/namespaces/{lab.namespace.name}/gangs", gang)


@pytest.mark.skipif(shutil.which("jq") is None, reason="the command of the docs needs jq")
def test_the_command_of_the_docs_takes_our_finalizer_alone(lab: Lab) -> None:
    control_plane = lab.control_plane
    lab.found()
    queue = f"{GROUP}/queues/{lab.team.queue}"
    lab.client.merge_patch(queue, {"metadata": {"finalizers": [KEEP]}})
    eventually(lambda: names.IN_USE in finalizers(lab, queue), what="the leader has put its own there")
    lab.muster.end()
    text = (ROOT / "docs" / "concepts.md").read_text()
    start = "for queue in $(kubectl get mq -o name)"
    command = f'kubectl() {{ {shlex.join(control_plane.kubectl_command)} "$@"; }}\n'
    command += start + text.partition(start)[2].partition("```")[0]

    environment = control_plane.kubectl_environment(control_plane.kubeconfig)
    subprocess.run(["bash", "-euc", command], check=True, env=environment, stdout=subprocess.DEVNULL)

    assert finalizers(lab, queue) == [KEEP]
    lab.client.merge_patch(queue, {"metadata": {"finalizers": None}})
    lab.muster.start()


def finalizers(lab: Lab, queue: str) -> list[str]:
    return list(lab.client.get(queue)["metadata"].get("finalizers", []))
