"""A text is written for its reader: nothing that users of one namespace read names what is in another one."""

import re

import pytest

from admission import default_ports
from admission.api.kubernetes.admission_review import ALLOWED, Review
from admission.api.kubernetes.jobs import Job
from admission.api.muster import gang_references, gangs
from admission.api.muster.gangs import GangReport
from admission.api.muster.ledger_entries import Kind
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.reasons import DenyReason, EventReason, EvictionReason, HoldReason
from admission.api.values.references import EVERYWHERE
from admission.errors import ClusterUnavailableError
from admission.podpolicy.admission import Rules
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.simulation import in_memory
from tests import teams
from tests.teams import OURS, SECRETS, THEIRS, Scene, Teams, a_scene
from tests.unit.cycle.jobs import Play

OWN = "its words are about the gang itself, its own namespace and queues"

DECISIONS: dict[str, dict[str, str]] = {
    "HoldReason": {
        "GangIncomplete": OWN,
        "QueueStopped": OWN,
        "QueueInactive": OWN,
        "QuotaExceeded": "preempted_for_quota",
        "BudgetExhausted": OWN,
        "DevicesBusy": "busy",
        "NoFeasiblePlacement": "fenced_in_vain",
        "NodesNeeded": OWN,
        "WaitingForClaims": "fenced_later",
        "SchedulingGated": OWN,
        "BehindInOrder": "strict",
        "PoolIncomplete": OWN,
        "StartTimedOut": OWN,
        "PlacementFailed": "taken_meanwhile",
        "RuntimeExceeded": OWN,
        "DevicesIdle": OWN,
        "EvictionRequested": OWN,
        "SearchLimit": OWN,
        "NotSimulated": OWN,
        "NotHoldable": OWN,
        "LedgerUnavailable": OWN,
        "InternalError": OWN,
    },
    "EvictionReason": {
        "Preempted": "preempted",
        "Reclaimed": "reclaimed",
        "RuntimeExceeded": OWN,
        "DevicesIdle": OWN,
        "QueueDrained": OWN,
        "EvictionRequested": OWN,
    },
    "EventReason": {
        "Admitted": OWN,
        "NotTogether": OWN,
        "FellBack": "tolerated",
        "Evicted": "taken_after_the_first_gate",
        "PlacedAnew": "taken_meanwhile",
        "GangIdle": OWN,
        "MemoryExceeded": OWN,
        "RequestAnswered": OWN,
        "WriteFailed": OWN,
        "DevicesProtected": OWN,
        "ProtectionLost": "breached",
        "FinalizerKept": OWN,
        "HeadSigned": OWN,
        "HeadNotPassed": OWN,
        "EpochRaised": OWN,
        "ForeignEntries": OWN,
    },
    "DenyReason": {
        "UnknownQueue": OWN,
        "QueueNotOpen": OWN,
        "QueueConflict": OWN,
        "QueueRequired": OWN,
        "NeverFits": OWN,
        "OverQuota": OWN,
        "UnmeteredClass": OWN,
        "ClaimTooLarge": OWN,
        "GateTampering": OWN,
        "PolicyViolation": "same_name",
        "MalformedClaim": OWN,
        "MalformedRequest": OWN,
        "TooMuchWork": OWN,
    },
}
"""For each reason, whether its words refer to other objects than the gang's own, and the scene that shows it then."""


@pytest.mark.parametrize("reasons", [HoldReason, EvictionReason, EventReason, DenyReason], ids=lambda one: one.__name__)
def test_of_every_reason_it_is_decided_whether_it_refers_to_others(reasons: type[HoldReason]) -> None:
    decided = DECISIONS[reasons.__name__]

    assert decided.keys() == {str(reason) for reason in reasons}
    assert {scene for scene in decided.values() if scene != OWN} <= teams.SCENES.keys()


SCENES_OF = sorted(
    {(scene, reason) for decided in DECISIONS.values() for reason, scene in decided.items() if scene != OWN}
)


@pytest.mark.parametrize(("scene", "reason"), SCENES_OF)
async def test_a_reason_that_refers_to_others_is_seen_in_its_scene(scene: str, reason: str) -> None:
    cluster = (await teams.seen(scene)).cluster

    holds = {obj["status"]["hold"]["reason"] for _, obj in cluster.written if "hold" in obj.get("status", {})}
    assert reason in cluster.referring() | cluster.events() | (holds & set(DenyReason))


@pytest.mark.parametrize(("scene", "condition"), [("deleted", "Active"), ("tolerated", "DevicesProtected")])
async def test_the_condition_of_a_queue_refers_to_others_in_its_scene(scene: str, condition: str) -> None:
    assert condition in (await teams.seen(scene)).cluster.referring()


@pytest.mark.parametrize("scene", teams.SCENES)
async def test_nothing_that_is_written_for_one_namespace_names_another(scene: str) -> None:
    cluster = (await teams.seen(scene)).cluster

    assert cluster.written
    assert not [*cluster.leaks()]


NAMED = {
    "busy": "claim hidden-ns/merger-with-acme-first-0-gpus of gang hidden-ns/merger-with-acme-first-",
    "strict": "gang hidden-ns/merger-with-acme-large-",
    "backfilled": "when gang hidden-ns/merger-with-acme-runs-",
    "unknown_ends": "nobody says how long gang hidden-ns/merger-with-acme-endless-",
    "preempted": "gang plain-ns/our-work-high-",
    "reclaimed": "gang plain-ns/our-work-owns-",
    "preempted_for_quota": "gang hidden-ns/merger-with-acme-low-",
    "taken_meanwhile": "is in use by claim hidden-ns/merger-with-acme-stray",
    "tolerated": "claim hidden-ns/merger-with-acme-stray (request gpus) tolerates",
    "fenced_in_vain": "claim hidden-ns/merger-with-acme-stray (request gpus) tolerates",
    "breached": "claim hidden-ns/merger-with-acme-stray has device",
    "fenced_later": "the fence waits until gang hidden-ns/merger-with-acme-pinned-",
}


@pytest.mark.parametrize(("scene", "named"), NAMED.items(), ids=NAMED)
async def test_who_may_read_everything_is_given_the_names(scene: str, named: str) -> None:
    """So that the other tests would fail if nobody but the gang itself were in the scene."""
    reports = (await teams.seen(scene)).reports()

    assert named in repr([gang_references.for_reader(report, EVERYWHERE) for report in reports])


@pytest.mark.parametrize("scene", ["preempted", "reclaimed"])
async def test_the_books_have_the_name_of_whom_a_gang_made_room_for(scene: str) -> None:
    entries = (await teams.seen(scene)).play.ledger.entries

    [reason] = [entry.reason for entry in entries if entry.kind is Kind.EVICT]
    assert re.match(r"(Preempted|Reclaimed): gang plain-ns/our-work-\w+-\w+ ", reason)


class Stuck(Teams):
    """A cluster that does not take pods back while it is stuck."""

    stuck = True

    async def suspend(self, job: Job) -> None:
        if self.stuck:
            raise ClusterUnavailableError("it does not answer")
        await super().suspend(job)


async def test_the_next_leader_knows_by_uid_for_whom_its_predecessor_evicts() -> None:
    """It reads the status of the victim, which does not name the gang that gets its devices."""
    cluster = Stuck(teams.one_queue(preemption=teams.LOWER))
    scene = Scene(cluster, Play(cluster))
    cluster.come(THEIRS, "low", queue="shared", pods=4)
    await scene.cycles()
    cluster.come(OURS, "high", queue="shared", pods=4, priority=10)
    await scene.cycles()
    [victim] = [obj for obj in cluster.stored.values() if obj["metadata"]["namespace"] == THEIRS]
    assert victim["status"]["evicted"]["reason"] == "Preempted"
    assert "madeRoomFor" not in victim["status"]["evicted"]

    scene.play.succeed()
    await scene.cycles(1)
    [nomination] = scene.play.leader.nominations.by_gang.values()
    assert nomination.group.key.startswith("plain-ns/our-work-high-")
    cluster.stuck = False
    await scene.cycles()
    cluster.end_grace()
    await scene.cycles(4)

    [reason] = [entry.reason for entry in scene.play.ledger.entries if entry.kind is Kind.EVICT]
    assert reason.startswith("Preempted: gang plain-ns/our-work-high-")
    assert not [*cluster.leaks()]


async def test_a_victim_without_pods_still_says_by_uid_for_whom_it_was_evicted() -> None:
    scene = await teams.SCENES["reclaimed"]()
    [victim] = [obj for obj in scene.cluster.stored.values() if "evicted" in obj["status"]]
    [preemptor] = [key for key in scene.cluster.stored if key.startswith(f"{OURS}/")]

    [reference] = victim["status"]["evicted"]["references"]
    assert [one["uid"] for one in reference["objects"]] == [in_memory.uid_of("Gang", preemptor)]


class Late(Teams):
    """A cluster in which the Gang objects of ours are seen late, as they are written beside the cycles."""

    is_late = True

    async def gang(self, report: GangReport) -> None:
        await super().gang(report)
        if self.is_late and report.namespace == OURS:
            self._gangs.pop(report.key, None)


async def test_the_uid_of_a_gang_is_added_as_soon_as_there_is_a_gang_object() -> None:
    cluster = Late(teams.one_queue(preemption=teams.LOWER))
    scene = Scene(cluster, Play(cluster))
    cluster.come(THEIRS, "low", queue="shared", pods=4)
    await scene.cycles()
    cluster.come(OURS, "high", queue="shared", pods=4, priority=10)
    await scene.cycles()

    def referents() -> list[Json]:
        [victim] = [obj for obj in cluster.stored.values() if obj["metadata"]["namespace"] == THEIRS]
        objects: list[Json] = victim["status"]["evicted"]["references"][0]["objects"]
        return objects

    assert referents() == [{"kind": "Gang", "queue": "shared"}]

    cluster.is_late = False
    [key] = [key for key in cluster.stored if key.startswith(f"{OURS}/")]
    cluster._gangs[key] = gangs.decode(cluster.stored[key])
    await scene.cycles(1)

    assert referents() == [{"kind": "Gang", "queue": "shared", "uid": in_memory.uid_of("Gang", key)}]


async def test_logs_have_all_names() -> None:
    scene = a_scene(teams.one_queue())
    scene.cluster.come(THEIRS, "first", queue="shared", pods=4)
    await scene.cycles()
    scene.cluster.come(OURS, "second", queue="shared")

    [outcome] = (await scene.play.forget_changes()).decisions

    assert "gang hidden-ns/merger-with-acme-first-" in outcome.message
    assert "hidden-ns/" in str(outcome.details["holders"])


def a_review(operation: str, resource: str, obj: Json, *, group: str = "", version: str = "v1", kind: str) -> Review:
    old, new = (obj, None) if operation == "DELETE" else (None, obj)
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    return Review(
        uid="u",
        group=group,
        version=version,
        resource=resource,
        kind=kind,
        operation=operation,
        namespace=namespace,
        name=name,
        username="ben",
        obj=new,
        old=old,
    )


def a_pod(name: str, *, labels: dict[str, str], claim: str = "c") -> Review:
    meta = {"name": name, "namespace": OURS, "labels": labels}
    spec = {
        "schedulingGates": [{"name": names.GATE}],
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": claim}],
    }
    return a_review("CREATE", "pods", {"metadata": meta, "spec": spec}, kind="Pod")


def of_muster(operation: str, resource: str, kind: str, obj: Json) -> Review:
    return a_review(operation, resource, obj, group=names.GROUP, version=names.VERSION, kind=kind)


REVIEWS = {
    "a pod of an unknown queue": a_pod("p", labels={names.QUEUE: "shard"}),
    "a pod of a gang whose name others have": a_pod("p", labels={names.QUEUE: "shared", names.GANG: "g"}),
    "a pod with too much": a_pod("p", labels={names.QUEUE: "shared"}, claim="our-work-stray"),
    "a gang whose name others have": of_muster(
        "CREATE", "gangs", "Gang", {"metadata": {"name": "g", "namespace": OURS}, "spec": {"queue": "none", "size": 1}}
    ),
    "a queue that is deleted": of_muster(
        "DELETE", "queues", "Queue", {"metadata": {"name": "shared"}, "spec": {"namespaceSelector": {}}}
    ),
    "a meter that is deleted": of_muster(
        "DELETE",
        "meters",
        "Meter",
        {"metadata": {"name": "gpus"}, "spec": {"sources": [{"deviceClasses": ["x"], "count": {}}]}},
    ),
}


@pytest.mark.parametrize("review", REVIEWS.values(), ids=REVIEWS)
@pytest.mark.parametrize("scene", ["busy", "same_name", "preempted"])
async def test_no_answer_at_the_door_names_another_namespace(scene: str, review: Review) -> None:
    snapshot = (await teams.seen(scene)).cluster.snapshot()
    view = default_ports.FrozenView(snapshot)
    rules = Rules(controller="muster")

    answers = [reviewer.validate(review, view, rules=rules, caches=ReviewCaches())]
    if review.resource == "pods":
        answers.append(reviewer.mutate(review, view, caches=ReviewCaches()))

    assert any(answer != ALLOWED for answer in answers) or scene != "busy"
    secrets = SECRETS[review.namespace]
    assert not [secret for answer in answers for secret in secrets if secret in repr(answer)]


@pytest.mark.parametrize(("operator", "values"), [("In", [THEIRS]), ("NotIn", [OURS, THEIRS])])
def test_who_is_shut_out_of_a_queue_is_not_told_the_names_of_its_namespaces(operator: str, values: list[str]) -> None:
    """`muster init` proposes a queue for each namespace, by its name."""
    named = {"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}
    cluster = Teams(teams.one_queue(namespaceSelector={"matchExpressions": [named]}))
    review = a_pod("p", labels={names.QUEUE: "shared"})

    verdict = reviewer.validate(
        review, default_ports.FrozenView(cluster.snapshot()), rules=Rules(controller="muster"), caches=ReviewCaches()
    )

    assert verdict.denial is not None
    assert verdict.denial.reason is DenyReason.QUEUE_NOT_OPEN
    assert f"{operator.lower()} ({len(values)} not shown)" in verdict.denial.message
    assert not [secret for secret in SECRETS[OURS] if secret in repr(verdict)]
