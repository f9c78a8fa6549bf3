"""Fences on a real control plane: who gets past one, who mends it, and what becomes of gangs without it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures, musters, teams
from tests.e2e.barriers import Barrier
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY = f"{ADMISSION}/validatingadmissionpolicies/muster-fence"
BINDING = f"{ADMISSION}/validatingadmissionpolicybindings/muster-fence"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
RULE = f"muster-fence-{fleet.DRIVER}"


hardware = fixtures.hardware(fleet.demo_fleet([2, 2]))


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane, hardware: None, rules: str) -> Iterator[Muster]:
    """An installation that fences the GPUs. What a test takes away, it makes anew."""
    with musters.running(control_plane, fence=[fleet.DRIVER]) as muster:
        eventually(lambda: control_plane.client().find(f"{rules}/{RULE}"), what="the fence stands")
        yield muster


def fenced(muster: Muster, control_plane: ControlPlane, rules: str, *, stands: bool = True) -> None:
    """Start Muster, and wait for its fence where it is to stand."""
    muster.configure(fence=[fleet.DRIVER])
    muster.start()
    if stands:
        eventually(lambda: control_plane.client().find(f"{rules}/{RULE}"), what="the fence stands")


def unfenced(muster: Muster, control_plane: ControlPlane, rules: str) -> None:
    """Start Muster without the setting, and wait until nothing is left of the fence."""
    muster.end()
    muster.configure()
    muster.start()
    client = control_plane.client()
    eventually(
        lambda: not any(client.find(path) for path in (f"{rules}/{RULE}", POLICY, BINDING)),
        what="rule, policy and binding are gone",
    )


@pytest.fixture
def heeded(muster: Muster, barrier: Barrier, namespace: Namespace) -> None:
    """kube-scheduler has seen the fence that stands; a pod beside Muster gets a device from one that has not."""
    barrier.wait(namespace)


@pytest.mark.usefixtures("heeded")
def test_pods_outside_muster_get_no_fenced_device(namespace: Namespace) -> None:
    namespace.create(workloads.claim_template("one", workloads.device_request()), workloads.pod("out", template="one"))

    namespace.wait_refused("out", "cannot allocate all claims")


def tolerant(**toleration: str) -> Any:
    request = workloads.device_request()
    request["exactly"]["tolerations"] = [{"key": "example.com/other", "operator": "Exists"}, toleration]
    return request


TOLERATIONS = {
    "by name": {"key": "muster.dev/fence", "operator": "Equal", "value": "Muster", "effect": "NoSchedule"},
    "by name, whatever its value": {"key": "muster.dev/fence", "operator": "Exists"},
    "by a wildcard": {"operator": "Exists"},
    "by a wildcard of the effect": {"operator": "Exists", "effect": "NoSchedule"},
}


@pytest.mark.usefixtures("muster")
def test_claims_that_tolerate_a_fence_are_refused_in_every_namespace(control_plane: ControlPlane) -> None:
    client = control_plane.client()
    for name in ("default", "kube-system", "muster-system"):
        somewhere = Namespace(name=name, client=client)
        for how, toleration in TOLERATIONS.items():
            for manifest, field in (
                (workloads.claim("c", tolerant(**toleration)), "spec.devices"),
                (workloads.claim_template("t", tolerant(**toleration)), "spec.spec.devices"),
            ):
                with pytest.raises(ApiError) as refused:
                    somewhere.create(manifest)
                assert f"{field}.requests[0].exactly.tolerations[1]: tolerates" in str(refused.value), how
                assert "name the key of the taint that you mean" in str(refused.value)


@pytest.mark.usefixtures("muster")
def test_an_alternative_that_tolerates_a_fence_is_refused(namespace: Namespace) -> None:
    plain = {"name": "plain", "deviceClassName": fleet.DEVICE_CLASS}
    open_one = {"name": "open", "deviceClassName": fleet.DEVICE_CLASS, "tolerations": [{"operator": "Exists"}]}

    with pytest.raises(ApiError, match=r"requests\[1\]\.firstAvailable\[1\]\.tolerations\[0\]: tolerates"):
        namespace.create(
            workloads.claim(
                "c", workloads.device_request("first"), {"name": "second", "firstAvailable": [plain, open_one]}
            )
        )


@pytest.mark.usefixtures("muster")
def test_claims_that_tolerate_other_taints_are_none_of_its_business(namespace: Namespace) -> None:
    other = workloads.device_request()
    other["exactly"]["tolerations"] = [
        {"key": "example.com/other", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "muster.dev/fence", "operator": "Equal", "value": "another"},
    ]

    namespace.create(workloads.claim("c", other))


@pytest.mark.usefixtures("heeded")
def test_admin_access_takes_no_device_from_anybody_and_gets_past_a_fence_by_tolerating_it(
    namespace: Namespace, control_plane: ControlPlane
) -> None:
    labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    control_plane.client().merge_patch(f"/api/v1/namespaces/{namespace.name}", labels)
    for name, tolerations in (("looks", [{"operator": "Exists"}]), ("blind", [])):
        request = workloads.device_request()
        request["exactly"] |= {"adminAccess": True, "tolerations": tolerations}
        namespace.create(workloads.claim(name, request), workloads.pod(name, claim=name))

    namespace.bound("looks")
    namespace.wait_refused("blind", "cannot allocate all claims")


@pytest.mark.parametrize("gone", [POLICY, BINDING, "rule"], ids=["policy", "binding", "rule"])
def test_what_somebody_deletes_is_made_anew(muster: Muster, control_plane: ControlPlane, rules: str, gone: str) -> None:
    client = control_plane.client()
    path = f"{rules}/{RULE}" if gone == "rule" else gone
    uid = client.get(path)["metadata"]["uid"]

    client.delete(path)

    eventually(lambda: (client.find(path) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid, what="it is back")
    holds_for(1, lambda: not muster.program.ended, what="Muster runs")


@pytest.mark.usefixtures("muster")
def test_what_somebody_changes_is_set_right(control_plane: ControlPlane, rules: str) -> None:
    client = control_plane.client()
    client.merge_patch(f"{rules}/{RULE}", {"spec": {"taint": {"key": "example.com/other"}}})
    client.merge_patch(BINDING, {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}})
    client.merge_patch(POLICY, {"spec": {"failurePolicy": "Ignore"}})

    def is_right() -> bool:
        taint = client.get(f"{rules}/{RULE}")["spec"]["taint"]
        bound = client.get(BINDING)["spec"]
        return (
            taint["key"] == "muster.dev/fence"
            and "matchResources" not in bound
            and client.get(POLICY)["spec"]["failurePolicy"] == "Fail"
        )

    eventually(is_right, what="all of it is as before")


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    with teams.founded(control_plane, namespace, gpus=8) as team:
        yield team


def protected(team: Team) -> Any:
    """What the queue says of the protection of its devices."""
    status = team.control_plane.client().get(f"{GROUP}/queues/{team.queue}").get("status", {})
    found = [one for one in status.get("conditions", []) if one["type"] == "DevicesProtected"]
    return found[0] if found else {}


def wait_protected(team: Team, status: str) -> Any:
    return eventually(
        lambda: found if (found := protected(team)).get("status") == status else None, what=f"DevicesProtected={status}"
    )


def events(team: Team) -> set[str]:
    """Reasons of the Events about the team's queue."""
    found = team.control_plane.client().items("/apis/events.k8s.io/v1/namespaces/default/events")
    return {event["reason"] for event in found if event["regarding"].get("name") == team.queue}


def test_behind_a_fence_gangs_get_their_devices_and_others_none(team: Team) -> None:
    team.namespace.create(workloads.claim_template("one", workloads.device_request()))
    wait_protected(team, "True")

    team.submit("train", pods=4)

    team.wait_running("train", 4)
    mode, reason = team.placed("train")
    assert mode == "Allocate"
    assert reason == f"driver {fleet.DRIVER}: its devices are fenced"
    eventually(lambda: "DevicesProtected" in events(team), what="an Event tells of it")


@pytest.mark.usefixtures("muster")
def test_who_wants_kube_scheduler_to_choose_behind_a_fence_is_told_the_mend(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=8, placement="Pin")

    team.submit("pinned", pods=1)

    hold = team.wait_held("pinned", "NoFeasiblePlacement")
    assert "Pin was asked for" in hold["message"]
    assert "setting `fence`" in hold["message"]
    team.disband()


def test_a_claim_that_is_there_already_and_tolerates_everything_is_named_and_the_fence_does_not_count(
    team: Team, muster: Muster, control_plane: ControlPlane, rules: str
) -> None:
    client = control_plane.client()
    outside = Namespace(name="default", client=client)  # that of a queue takes no claims without Muster
    muster.end()
    client.delete(BINDING)
    passes = workloads.claim("passes", tolerant(operator="Exists"))
    eventually(lambda: is_taken(outside, passes), what="the claim is made while nobody refuses it")
    fenced(muster, control_plane, rules, stands=False)

    why = "a claim tolerates every taint"
    eventually(lambda: why in protected(team).get("message", ""), what="the queue says what weakens the fence")
    told = muster.command("queue", "list", "--format", "json")
    assert "claim default/passes tolerates every taint" in told, "who may read claims is told which"
    eventually(
        lambda: client.find(f"{rules}/{RULE}") is None, what="the fence is taken away, or nobody could be pinned"
    )
    team.submit("pinned", pods=1)
    team.wait_running("pinned", 1)
    assert team.placed("pinned")[0] == "Pin"
    team.finish("pinned")

    client.delete(f"{outside.claims}/passes")
    wait_protected(team, "True")
    assert client.find(f"{rules}/{RULE}")


@pytest.mark.usefixtures("heeded")
def test_a_fence_outlives_muster_and_is_lifted_by_a_command(
    muster: Muster, control_plane: ControlPlane, rules: str, namespace: Namespace
) -> None:
    muster.end()
    namespace.create(workloads.claim_template("one", workloads.device_request()), workloads.pod("out", template="one"))
    namespace.wait_refused("out")
    assert fleet.DRIVER in muster.command("fence", "list")

    said = muster.command("fence", "lift")

    assert f"removed DeviceTaintRule {RULE}" in said
    assert "removed ValidatingAdmissionPolicyBinding muster-fence" in said
    namespace.bound("out")
    assert "none" in muster.command("fence", "list")
    namespace.empty()
    fenced(muster, control_plane, rules)


@pytest.mark.timeout(240, func_only=True)
def test_a_fence_that_goes_up_while_others_are_served_gives_no_device_twice(
    team: Team, muster: Muster, control_plane: ControlPlane, rules: str
) -> None:
    """Pods outside come one after the other, take what they get and end at once, while the fence goes up."""
    client = control_plane.client()
    outside = Namespace(name="default", client=client)
    # Templates of the team wait for Muster.
    for place, template in ((team.namespace, "gpus-1"), (outside, "one")):
        place.create(workloads.claim_template(template, workloads.device_request(count=1)))
    muster.end()
    muster.command("fence", "lift")
    ends = {workloads.RUNTIME: "1s"}
    pods = [workloads.pod(f"outside-{n}", template="one", annotations=ends) for n in range(40)]
    outside.create(*pods[:20])
    names = ("one", "two", "three")
    for name in names:
        team.submit(name, pods=2)
    muster.configure(fence=[fleet.DRIVER])
    muster.start()
    outside.create(*pods[20:])

    def two_are_allocated() -> bool:
        allocated = [claim for claim in client.items(CLAIMS) if claim.get("status", {}).get("allocation")]
        devices = [
            (result["pool"], result["device"])
            for claim in allocated
            for result in claim["status"]["allocation"]["devices"]["results"]
        ]
        assert len(devices) == len(set(devices)), f"a device is allocated twice: {sorted(devices)}"
        gangs = [team.gang(name) or {} for name in names]
        return [gang.get("status", {}).get("placement") for gang in gangs].count("Allocate") == 2

    eventually(two_are_allocated, what="two gangs have all devices", within=120)
    eventually(lambda: [team.phases(name) for name in names].count(["Running"] * 2) == 2, what="they run")
    for pod in pods:
        client.delete(f"{outside.pods}/{pod['metadata']['name']}")
    client.delete(f"{outside.templates}/one")


def is_taken(namespace: Namespace, manifest: Any) -> bool:
    try:
        namespace.create(manifest)
    except ApiError:
        return False
    return True


@pytest.mark.usefixtures("heeded")
def test_without_the_setting_the_fence_goes(
    muster: Muster, control_plane: ControlPlane, rules: str, namespace: Namespace
) -> None:
    namespace.create(workloads.claim_template("one", workloads.device_request()), workloads.pod("out", template="one"))
    namespace.wait_refused("out")

    unfenced(muster, control_plane, rules)

    namespace.bound("out")
    eventually(lambda: is_taken(namespace, workloads.claim("c", tolerant(operator="Exists"))), what="it is not refused")
    namespace.empty()
    muster.end()
    fenced(muster, control_plane, rules)
