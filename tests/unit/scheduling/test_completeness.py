"""What is said of gangs that are not complete, and of pods that do not agree."""

from dataclasses import replace
from datetime import timedelta

from admission.api.muster import gangs, queues
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.scheduling.checks import completeness
from admission.workloads import gangs as workloads_gangs
from admission.workloads.gangs import Group
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod

KUEUE = "kueue.x-k8s.io/pod-group-name"
COUNT = "kueue.x-k8s.io/pod-group-total-count"


TIMEOUT = timedelta(minutes=5)
CLASSES = [{"name": "urgent", "value": 100}, {"name": "idle", "value": -1}]
QUEUE = queues.decode({"metadata": {"name": "q"}, "spec": {"priorityClasses": CLASSES}})


def a_jobset(herd: Herd, *, pods: int, made: int | None = None) -> list[Manifest]:
    """made: how many of its pods there are; all of them by default."""
    entry = {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": TEMPLATE}}}
    jobset = herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=[entry]))
    (job,) = herd.all(standins.jobset_jobs(jobset))
    return standins.job_pods({**job, "spec": {**job["spec"], "parallelism": made or pods}})


def held(herd: Herd) -> str:
    found = completeness.hold(herd.gang, herd.snapshot, TIMEOUT)
    return found.message if found is not None else ""


def test_an_incomplete_gang_is_held_with_the_field_that_states_its_size() -> None:
    herd = Herd()
    herd.all(a_jobset(herd, pods=3)[:2])

    found = completeness.hold(herd.gang, herd.snapshot, TIMEOUT)

    assert found is not None
    assert found.message == (
        "2 of 3 pods exist; the gang starts with all of them (spec.replicatedJobs of JobSet train says how many);"
        " 1 missing, due by 2026-11-21T12:05:03Z (startTimeout of the queue)"
    )
    assert found.details == {"pods": 2, "size": 3, "missing": 1, "due": "2026-11-21T12:05:03Z"}


def test_pods_that_have_succeeded_are_not_waited_for() -> None:
    herd = Herd()
    done, left, missing = a_jobset(herd, pods=3)
    herd.put(done, phase="Succeeded")
    herd.put(left)
    assert held(herd).startswith("1 of 2 pods exist")

    herd.put(missing)
    assert held(herd) == ""


def test_pods_that_have_failed_are_waited_for() -> None:
    herd = Herd()
    failed, left = a_jobset(herd, pods=2)
    herd.put(failed, phase="Failed")
    herd.put(left)

    assert held(herd).startswith("1 of 2 pods exist")


def test_a_gang_of_unknown_size_does_not_start_however_many_pods_have_succeeded() -> None:
    herd = Herd()
    for name in ("a", "b"):
        herd.put(a_pod(name, group="lost"), phase="Succeeded" if name == "a" else "Pending")

    assert "PodGroup lost" in held(herd)


def test_a_gang_of_an_impossible_size_is_held_with_that_reason() -> None:
    herd = Herd()
    herd.all(a_jobset(herd, pods=20_000, made=1))

    assert "spec.replicatedJobs of JobSet train makes it 20000 pods, and a gang has at most 10000" in held(herd)


def test_a_gang_size_one_above_the_limit_is_reported_as_too_large() -> None:
    herd = Herd()
    job = herd.put(an_object("batch/v1", "Job", "wide", parallelism=10_001, template=TEMPLATE))
    herd.all(standins.job_pods({**job, "spec": {**job["spec"], "parallelism": 1}}))

    assert held(herd) == (
        "spec.parallelism of Job wide makes it 10001 pods, and a gang has at most 10000; write a smaller number"
    )


def refused(group: Group) -> str:
    found = completeness.denial(group, QUEUE)
    return found.message if found is not None else ""


def test_pods_of_one_gang_in_two_queues_are_refused() -> None:
    herd = Herd()
    one, two = a_jobset(herd, pods=2)
    herd.all([one, standins.labelled(two, {names.QUEUE: "other"})])

    assert refused(herd.gang).startswith("its pods name the queues other, q; give all of them the same label")


def test_pods_with_different_group_sizes_in_annotations_of_other_systems_are_refused() -> None:
    herd = Herd()
    for name, size in (("a", "2"), ("b", "3")):
        herd.put(a_pod(name, labels={KUEUE: "pair"}, **{COUNT: size}))

    assert refused(herd.gang) == f"its pods say different sizes (2, 3); give all of them the same {COUNT}"


def recorded(snapshot: Snapshot, name: str, workload: Manifest | None) -> Snapshot:
    """A Gang object of that name, as Muster makes it for a workload."""
    labels = {names.MANAGED_BY: names.FIELD_MANAGER}
    spec: Manifest = {"queue": "q", "size": 2}
    if workload is not None:
        spec["workload"] = {key: value for key, value in standins.owner(workload).items() if key != "controller"}
    gang = gangs.decode({"metadata": {"name": name, "namespace": "team", "labels": labels}, "spec": spec})
    return replace(snapshot, gangs={gang.meta.key: gang})


def test_a_gang_that_is_named_like_that_of_a_workload_is_refused() -> None:
    """There is one Gang object for both, and the two would write over each other's status."""
    herd = Herd()
    herd.all(a_jobset(herd, pods=2))
    theirs = herd.gang
    herd.put(a_pod("a", labels={names.GANG: theirs.identity.name, names.GANG_SIZE: "1"}))
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train", "uid": "js"}}
    snapshot = recorded(herd.snapshot, theirs.identity.name, jobset)

    found = {group.uid: refused(group) for group in workloads_gangs.groups(snapshot, {})}

    assert found.pop(theirs.uid) == ""
    (message,) = found.values()
    assert message == f"{theirs.identity.name} is what the gang of JobSet train is called; give this one another name"


def test_a_gang_that_is_named_alone_keeps_its_name() -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={names.GANG: "own", names.GANG_SIZE: "1"}))

    (group,) = workloads_gangs.groups(recorded(herd.snapshot, "own", None), {})

    assert refused(group) == ""


def test_pods_with_the_same_group_size_in_annotations_of_other_systems_are_not_refused() -> None:
    herd = Herd()
    for name in ("a", "b"):
        herd.put(a_pod(name, labels={KUEUE: "pair"}, **{COUNT: "2"}))

    assert refused(herd.gang) == ""


def test_pods_of_a_group_of_another_system_without_a_size_are_not_refused() -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={KUEUE: "pair"}))

    assert refused(herd.gang) == ""


def test_a_pod_that_names_a_priority_class_that_its_queue_does_not_have_is_refused() -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={names.PRIORITY_CLASS: "urgent"}))
    assert refused(herd.gang) == ""

    herd = Herd()
    herd.put(a_pod("a", labels={names.PRIORITY_CLASS: "urgnt"}))
    assert refused(herd.gang) == (
        "pod team/a: muster.dev/priority-class names urgnt, which is no priority class of queue q; it has urgent, idle"
    )
    found = completeness.denial(herd.gang, replace(QUEUE, priority_classes=()))
    assert found is not None
    assert found.message.endswith("it has none (spec.priorityClasses)")


def test_a_gang_is_held_while_a_gate_of_others_is_on_one_of_its_pods() -> None:
    herd = Herd()
    herd.put(a_pod("p"))
    group = herd.gang
    (pod,) = group.pods
    other = replace(pod, gates=(names.GATE, "example.com/other"))
    expected = replace(other, meta=replace(pod.meta, uid=names.expected_pod(pod.meta.uid, 0)))

    found = completeness.gated(replace(group, pods=(other,)))

    assert found is not None
    assert (
        found.message
        == "pod p has the scheduling gate example.com/other, which Muster does not open: whoever set it has to"
    )
    assert found.details == {"pod": "p", "gate": "example.com/other"}
    assert completeness.gated(group) is None
    assert completeness.gated(replace(group, pods=(expected,))) is None
