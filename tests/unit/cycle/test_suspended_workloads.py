"""Workloads that are held as a whole: planned before they have pods, resumed, and their pods take over the plan."""

from dataclasses import replace
from typing import Any, cast

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes import claims, devices, pods
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.owners import Parent
from admission.api.muster import meters
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.api.values.names import Held, Uid
from admission.api.values.reasons import EventReason, HoldReason
from admission.cycle import cycle, reconcile
from admission.cycle.state.result import CycleResult
from admission.review import expected_pods
from admission.review.caches import ReviewCaches
from admission.scheduling.placement.protection import Barriers
from admission.workloads import suspendable
from admission.workloads.kinds import podgroup
from tests.builders import CLASS, NAMESPACE, a_cluster, claim_manifest
from tests.unit.claimpolicy.policies import a_policy
from tests.unit.cycle.fences import a_leader, kinds, report
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.suspended import HeldJobs, a_play

FABRIC = {"name": "fabric", "resourceClaimTemplateName": "x1"}


def gpus(play: Play) -> tuple[int, int]:
    """Reserved and used."""
    uses = play.ledger.book.usage().values()
    found = [use for meters in uses for meter, use in meters.items() if meter == "gpus"]
    return sum(use.reserved for use in found), sum(use.used for use in found)


def of(result: CycleResult, name: str = "train") -> GangReport:
    return report(result, name)


async def test_a_held_job_waits_without_pods_and_its_status_says_why() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=2))
    cluster.submit_held("train", queue="q", pods=3)

    told = of(await play.forget_changes())

    assert told.hold is not None
    assert told.hold.reason is HoldReason.QUOTA_EXCEEDED
    assert (told.pods, told.expected, told.size) == (0, 3, 3)
    assert told.phase is Phase.PENDING
    assert cluster.pods_of("train") == []
    assert cluster.writes == []


def test_workloads_without_a_mark_and_those_that_another_controller_suspends_are_not_held() -> None:
    cluster, _ = a_play(a_cluster())
    for name, kind in (("own", ""), ("nightly", "CronJob"), ("of-a-jobset", "JobSet"), ("unmarked", "")):
        cluster.submit_held(name, queue="q")
        meta = cluster.job(name).meta
        owner = Owner(api_version="v1", kind=kind, name="owner", uid=Uid("owner"), controller=True)
        marks = {} if name == "unmarked" else meta.annotations
        cluster.set_job(name, meta=replace(meta, annotations=marks, owners=(owner,) if kind else ()))

    held = [workload.meta.name for workload in suspendable.held_workloads(cluster.snapshot())]

    assert held == ["own", "nightly"]


async def test_a_held_job_is_resumed_at_its_grant_and_its_pods_take_over_the_plan() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=4))
    cluster.submit_held("train", queue="q", pods=3)

    granted = of(await play.forget_changes())

    assert granted.phase is Phase.RESERVED
    assert cluster.writes == ["start train"]
    assert gpus(play) == (3, 0)
    planned = sorted(str(device.device) for pod in granted.plan for claim in pod.claims for device in claim.devices)

    await play.forget_changes(3)

    assert sorted(pod.phase for pod in cluster.pods_of("train")) == ["Running"] * 3
    assert gpus(play) == (0, 3)
    ran = of(await play.forget_changes())
    assert ran.phase is Phase.RUNNING
    given = sorted(str(device.device) for pod in ran.plan for claim in pod.claims for device in claim.devices)
    assert given == planned
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.ADJUST, Kind.SETTLE]
    assert cluster.writes == ["start train"]


async def test_devices_reserved_for_a_held_job_go_to_no_other_gang_while_its_pods_come() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    cluster.submit_held("train", queue="q", pods=4)
    await play.forget_changes()
    cluster.submit("other", queue="q", pods=1, priority=10)

    await play.forget_changes(4)

    assert cluster.running() == {"train"}
    for entries in range(len(play.ledger.entries)):
        book = type(play.ledger.book).replay(play.ledger.entries[: entries + 1])
        for uses in book.usage().values():
            assert sum(use.reserved + use.used for meter, use in uses.items() if meter == "gpus") in {0, 4}


ONE_KIND = {"preferences": {"kinds": [{"name": "gpu", "deviceClasses": [CLASS]}]}}


@pytest.mark.parametrize(
    ("memory", "more", "anew"),
    [(("40Gi", "40Gi"), {}, False), (("80Gi", "40Gi"), {}, True), (("40Gi", "40Gi"), ONE_KIND, True)],
    ids=["the same", "dearer", "of any kind, where the queue prefers kinds"],
)
async def test_a_resumed_job_takes_a_device_that_became_free_while_its_pods_came_if_it_is_as_good(
    memory: tuple[str, str], more: dict[str, Any], anew: bool
) -> None:
    """Seen in every second Job of short ones: the pods were withdrawn and the gang was planned anew."""
    nominal = {"claims": "9", "gpus": "2", "memory": "120Gi"}
    quotas = [{"meter": meter, "nominal": amount} for meter, amount in nominal.items()]
    cluster, play = a_play(a_cluster().node("a", gpus=2).queue("q", quotas=quotas, **more))
    _measure_memory(cluster, memory)
    play.leader = a_leader(cluster, play.ledger, barriers=Barriers())
    cluster.submit_held("first", queue="q", pods=1)
    await play.forget_changes(3)
    assert cluster.running() == {"first"}
    cluster.submit_held("train", queue="q", pods=1)
    await play.forget_changes()
    cluster.finish_job("first")

    await play.forget_changes(3)

    assert sorted(pod.phase for pod in cluster.pods_of("train")) == ["Running"]
    assert (Kind.EVICT in kinds(play.ledger)) is anew
    assert any(notice.reason == EventReason.REPLANNED for notice in cluster.notices) is anew
    assert gpus(play) == (0, 1)


def _measure_memory(cluster: HeldJobs, memory: tuple[str, ...]) -> None:
    """Give the devices of node a memory, which a meter counts."""
    source = {"deviceClasses": [CLASS], "capacity": {"name": "memory"}}
    meter = meters.decode({"metadata": {"name": "memory", "generation": 1}, "spec": {"sources": [source]}})
    ((key, known),) = cluster._rest.slices.items()
    listed = [{"name": f"gpu-{at}", "capacity": {"memory": {"value": one}}} for at, one in enumerate(memory)]
    spec = {"driver": CLASS, "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}
    metadata = {"name": known.meta.name, "uid": known.meta.uid, "resourceVersion": "2"}
    made = devices.decode_slice({"metadata": metadata, "spec": {**spec, "devices": listed}})
    cluster._rest = replace(cluster._rest, meters={**cluster._rest.meters, meter.name: meter}, slices={key: made})


async def test_the_first_pods_of_a_resumed_job_wait_for_the_others_and_are_not_charged_twice() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=8).queue("q", gpus=8))
    cluster.submit_held("train", queue="q", pods=3)
    await play.forget_changes()
    cluster.make_pods()
    late = cluster.pods_of("train")[0]
    del cluster._pods[late.meta.uid]

    told = of(await play.forget_changes())

    assert gpus(play) == (3, 0)
    assert told.hold is not None
    assert "2 of 3 pods and their claims exist since their workload was resumed" in told.hold.message
    cluster._pods[late.meta.uid] = late
    await play.forget_changes(2)
    assert cluster.running() == {"train"}
    assert gpus(play) == (0, 3)


async def test_a_job_that_is_deleted_leaves_no_hold_and_no_charge() -> None:
    for cycles in (0, 1, 2, 4):
        cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
        cluster.submit_held("train", queue="q", pods=2)
        await play.forget_changes(cycles)

        cluster.delete_job("train")
        await play.forget_changes(2)

        assert play.ledger.book.placements == {}
        assert gpus(play) == (0, 0)


async def test_a_job_suspended_by_its_user_is_not_resumed_and_its_reservation_is_released() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    cluster.submit_held("train", queue="q", pods=2)
    await play.forget_changes()

    cluster.set_job("train", suspended=True)
    result = await play.forget_changes(3)

    assert cluster.writes == ["start train"]
    assert play.ledger.book.placements == {}
    assert [gang for gang in result.gangs if gang.hold is not None] == []


async def test_a_resumed_job_that_makes_no_pods_in_time_is_suspended_and_held_again() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="2s"))
    cluster.submit_held("train", queue="q", pods=2)
    cluster.made.clear()

    result = await play.forget_changes(5)

    assert cluster.writes == ["start train", "hold train"]
    assert suspendable.held(cluster.job("train").meta) is Held.WAITING
    assert cluster.job("train").suspended
    assert gpus(play) == (0, 0)
    hold = of(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.START_TIMED_OUT


async def test_a_preempted_job_is_suspended_until_it_may_start_again() -> None:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=2, preemption={"withinQueue": "LowerPriority"})
    cluster, play = a_play(builder, graceful=True)
    cluster.submit_held("low", queue="q", pods=2)
    await play.forget_changes(4)
    assert cluster.running() == {"low"}
    cluster.submit("high", queue="q", pods=2, priority=5)

    await play.forget_changes(2)

    assert cluster.writes == ["start low", "hold low"]
    cluster.end_grace()
    await play.forget_changes(3)
    assert cluster.running() == {"high"}
    told = of(await play.forget_changes(), "low")
    assert (told.pods, told.expected) == (0, 2)
    assert told.hold is not None
    cluster.delete_job("high")
    await play.forget_changes(5)
    cluster.end_grace()
    await play.forget_changes(5)
    assert cluster.running() == {"low"}
    assert cluster.writes == ["start low", "hold low", "start low"]
    assert gpus(play) == (0, 2)


async def test_the_next_leader_resumes_granted_jobs_and_hands_their_reservations_over() -> None:
    for cycles in (1, 2):
        cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
        cluster.submit_held("train", queue="q", pods=3)
        await play.forget_changes(cycles)
        if cycles == 1:
            job = cluster.job("train")
            meta = replace(job.meta, annotations={"muster.dev/held": Held.WAITING})
            cluster.set_job("train", suspended=True, meta=meta)

        play.succeed()
        await play.forget_changes(3)

        assert cluster.running() == {"train"}
        assert gpus(play) == (0, 3)


async def test_a_held_job_that_was_resumed_past_the_webhook_is_suspended_again() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=1).queue("q", gpus=1))
    cluster.submit_held("train", queue="q", pods=2)
    cluster.made.clear()
    cluster.set_job("train", suspended=False)

    await play.forget_changes()

    assert cluster.writes == ["hold train"]


async def test_pods_that_differ_from_the_planned_pods_release_the_reservation_and_queue_like_others() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4, cpu="64").queue("q", gpus=4))
    cluster.submit_held("train", queue="q", pods=2)
    await play.forget_changes()
    cluster.make_pods()
    for pod in cluster.pods_of("train"):
        cluster._pods[pod.meta.uid] = replace(pod, requests={**pod.requests, "cpu": 2000})

    await play.forget_changes(3)

    assert cluster.running() == {"train"}
    assert gpus(play) == (0, 2)
    assert [entry.reason for entry in play.ledger.entries if entry.kind is Kind.RELEASE] != []
    assert any("what its containers request differs" in notice.message for notice in cluster.notices)


async def test_a_held_job_whose_pod_template_cannot_be_read_has_a_hold_that_says_so() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    cluster.submit_held("train", queue="q", pods=2, tolerations="all")

    found = of(await play.forget_changes())

    assert found.hold is not None
    assert found.hold.reason is HoldReason.NOT_HOLDABLE
    assert "tolerations" in found.hold.message
    assert found.workload is not None
    assert (found.workload.kind, found.workload.name) == ("Job", "train")
    assert cluster.writes == []


async def test_a_claim_template_that_is_missing_is_waited_for() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    templates, cluster._rest = cluster._rest.templates, replace(cluster._rest, templates={})
    cluster.submit_held("train", queue="q", pods=2)

    hold = of(await play.forget_changes()).hold

    assert hold is not None
    assert "ResourceClaimTemplate team/x1 does not exist; create it" in hold.message
    cluster._rest = replace(cluster._rest, templates=templates)
    await play.forget_changes(4)
    assert cluster.running() == {"train"}


async def test_nothing_is_written_to_pods_and_claims_that_do_not_exist() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="2s"))
    cluster.submit_held("train", queue="q", pods=2)
    cluster.made.clear()

    await play.forget_changes(6)

    assert "hold train" in cluster.writes
    assert cluster.calls == []


async def test_claims_that_a_policy_makes_of_extended_resources_are_planned_before_their_template_is_there() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=2).queue("q", gpus=2))
    policy = a_policy(conversions=[{"extendedResource": "nvidia.com/gpu", "deviceClassName": CLASS}])
    cluster._rest = replace(cluster._rest, policies={"p": policy})
    asked = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster.submit_held("train", queue="q", pods=2, gpus=0, containers=[asked])
    cluster.submit_held("large", queue="q", pods=3, gpus=0, containers=[asked])
    cluster.made.clear()

    result = await play.forget_changes()

    assert cluster.writes == ["start train"]
    assert gpus(play) == (2, 0)
    assert len({str(d.device) for pod in of(result).plan for claim in pod.claims for d in claim.devices}) == 2
    hold = of(result, "large").hold
    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED


async def test_the_books_agree_with_the_cluster_while_places_are_kept() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=2).queue("q", gpus=2))
    cluster.submit_held("train", queue="q", pods=2)
    cluster.made.clear()
    await play.forget_changes()

    class Now:
        async def now(self) -> Snapshot:
            return cluster.snapshot()

    class Books:
        async def load(self) -> Book:
            return play.ledger.book

    async def pause() -> None:
        """Wait for nothing."""

    assert await reconcile.compare(cast("reconcile.Books", Books()), Now(), pause) == ()
    del cluster._jobs[Uid("job-train")]
    assert await reconcile.compare(cast("reconcile.Books", Books()), Now(), pause) != ()


async def test_a_process_that_leads_again_reuses_the_expected_pods_of_known_templates() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=2))
    cluster.submit_held("train", queue="q", pods=3)
    await play.forget_changes()
    first, snapshot = play.leader, cluster.snapshot()
    known = first.process.pending.add_to(snapshot, first.mirror.book).pods

    play.succeed()
    again = replace(play.leader, process=first.process)
    result = await cycle.run(again, cluster.now)

    assert of(result).expected == 3
    pods = again.process.pending.add_to(snapshot, again.mirror.book).pods
    assert len(pods) == 3
    assert all(pods[uid] is pod for uid, pod in known.items())


@pytest.mark.parametrize(
    ("kind", "of_template", "user"),
    [("Job.batch", "ada", "ada"), ("Job.batch", "", expected_pods.MAKER), ("JobSet.jobset.x-k8s.io", "", "ada")],
)
def test_expected_pods_are_made_by_whom_the_webhook_will_name(kind: str, of_template: str, user: str) -> None:
    cluster, _ = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=2))
    cluster.submit_held("train", queue="q")
    job = cluster.job("train")
    body = dict(job.template) | {"metadata": {"labels": {names.QUEUE: "q"}, "annotations": {names.USER: of_template}}}
    meta = replace(job.meta, annotations={**job.meta.annotations, names.USER: "ada"})
    if kind == "Job.batch":
        made: Job | Parent = replace(job, meta=meta, template=body)
    else:
        body["metadata"]["annotations"] = {}
        made = Parent(meta=meta, suspended=True, templates=suspendable.job_templates(replace(job, template=body)))
    workload = suspendable.Workload(kind=suspendable.BY_KEY[kind], obj=made)

    found = expected_pods.expected(workload, cluster.snapshot(), ReviewCaches())

    assert isinstance(found, tuple)
    assert [pod.user for pod in found[0].values()] == [user]


def test_expected_pods_of_a_job_with_nodes_of_its_own_ask_for_these() -> None:
    cluster, _ = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    cluster.submit_held("train", queue="q")
    job = cluster.job("train")
    annotations = {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack",
        "alpha.jobset.sigs.k8s.io/node-selector": "true",
    }
    spec = {"parallelism": 1, "completions": 1, "template": job.template}
    replicated = [{"name": "part", "replicas": 2, "template": {"spec": spec}}]
    kind = suspendable.BY_KEY["JobSet.jobset.x-k8s.io"]
    named = {"name": "train", "namespace": job.meta.namespace, "uid": job.meta.uid, "annotations": annotations}
    templates = kind.templates({"metadata": named, "spec": {"replicatedJobs": replicated}})
    made = Parent(meta=replace(job.meta, annotations=annotations), suspended=True, templates=templates)

    found = expected_pods.expected(suspendable.Workload(kind=kind, obj=made), cluster.snapshot(), ReviewCaches())

    assert isinstance(found, tuple)
    assert [dict(pod.node_selector) for pod in found[0].values()] == [
        {"alpha.jobset.sigs.k8s.io/namespaced-job": f"{job.meta.namespace}_train-part-{number}"} for number in range(2)
    ]
    assert all(pod.tolerations for pod in found[0].values())


async def test_the_requests_of_expected_pods_follow_a_claim_policy_that_comes_later() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4))
    asked = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster.submit_held("train", queue="q", pods=2, gpus=0, containers=[asked])
    pending, book = play.leader.process.pending, play.ledger.book
    policy = a_policy(conversions=[{"extendedResource": "nvidia.com/gpu", "deviceClassName": CLASS}])

    before = pending.add_to(cluster.snapshot(), book)
    cluster._rest = replace(cluster._rest, policies={"p": policy})
    after = pending.add_to(cluster.snapshot(), book)

    assert [len(pod.claims) for pod in before.pods.values()] == [0, 0]
    assert [len(pod.claims) for pod in after.pods.values()] == [1, 1]


async def test_claims_that_will_be_made_follow_the_templates_of_a_policy() -> None:
    def provide(**counts: int) -> None:
        specs = {name: claim_manifest("-", count, owner="-")["spec"] for name, count in counts.items()}
        policy = a_policy(templates=[{"name": name, "spec": spec} for name, spec in specs.items()])
        cluster._rest = replace(cluster._rest, policies={"p": policy})

    def counts() -> list[int]:
        found = play.leader.process.pending.add_to(cluster.snapshot(), play.ledger.book).claims.values()
        return sorted(claim.spec.requests[0].alternatives[0].count for claim in found)

    cluster, play = a_play(a_cluster().node("a", gpus=8).queue("q", gpus=8))
    one, other = ([{"name": "gpus", "resourceClaimTemplateName": name}] for name in ("one", "other"))
    cluster.submit_held("train", queue="q", gpus=0, resourceClaims=one)

    provide(one=1, other=4)
    assert counts() == [1]
    provide(one=2, other=4)
    assert counts() == [2]
    cluster.submit_held("more", queue="q", gpus=0, resourceClaims=other)
    assert counts() == [2, 4]


async def test_expected_pods_are_added_to_the_snapshot_again_when_their_number_changes() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=4).pod("outsider"))
    cluster.submit_held("train", queue="q", pods=2)
    pending, book = play.leader.process.pending, play.ledger.book
    snapshot = cluster.snapshot()
    cluster.submit_held("more", queue="q", pods=1)

    first = pending.add_to(snapshot, book)
    more = pending.add_to(replace(snapshot, jobs=cluster.snapshot().jobs), book)

    assert (len(first.pods), len(more.pods)) == (3, 4)
    assert (len(first.claims), len(more.claims)) == (3, 4)
    assert len(pending.add_to(snapshot, book).pods) == 3
    again = pending.add_to(snapshot, book)
    assert again.pods is pending.add_to(snapshot, book).pods
    assert pending.add_to(replace(snapshot, jobs={}), book).pods is snapshot.pods


def _a_ring(cluster: HeldJobs, **status: Any) -> None:
    """Create a PodGroup of two pods that has a claim for one GPU."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [FABRIC]}
    meta = {"name": "ring", "namespace": NAMESPACE, "uid": "group-ring"}
    group = podgroup.GANGS.decode({"metadata": meta, "spec": spec, "status": status})
    cluster._rest = replace(cluster._rest, parents={podgroup.GANGS.key: {group.meta.key: group}})


async def test_a_held_job_uses_the_one_claim_that_its_pod_group_has() -> None:
    cluster, play = a_play(a_cluster().node("a", gpus=4).queue("q", gpus=3))
    own = [{"name": "gpus", "resourceClaimTemplateName": "x1"}, FABRIC]
    _a_ring(cluster)
    cluster.submit_held(
        "train", queue="q", pods=2, resourceClaims=own, gpus=0, schedulingGroup={"podGroupName": "ring"}
    )
    cluster.made["train"]["gpus"] = 1

    hold = of(await play.forget_changes(), "ring").hold
    assert hold is not None
    assert "claim fabric: not made yet from ResourceClaimTemplate team/x1" in hold.message

    made = claims.decode(claim_manifest("ring-fabric", 1, owner="group-ring"))
    owner = Owner(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup", name="ring", uid=Uid("group-ring"))
    cluster._claims[made.meta.key] = replace(made, meta=replace(made.meta, owners=(owner,)))
    _a_ring(cluster, resourceClaimStatuses=[{"name": "fabric", "resourceClaimName": "ring-fabric"}])
    await play.forget_changes()

    assert cluster.writes == ["start train"]
    assert gpus(play) == (3, 0)
    cluster.make_pods()
    for pod in cluster.pods_of("train"):
        named = {**pod.generated_claims, "fabric": "ring-fabric"}
        both = pods.decode_claims(Reader({"resourceClaims": own}))
        cluster._pods[pod.meta.uid] = replace(pod, group="ring", claims=both, generated_claims=named)
    await play.forget_changes(3)
    assert cluster.running() == {"train"}
    assert gpus(play) == (0, 3)
    assert Kind.RELEASE not in kinds(play.ledger)
