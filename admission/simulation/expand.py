"""From manifests to a snapshot: the objects that the API server and controllers would make from them.

For `muster simulate`. Jobs and other workloads become their pods (`pods`), the webhook is called for every pod that is
not bound, the templates of ClaimPolicies are created, and pods get their claims from templates. What the input has
already (a Job's pods, a pod's claims, an allocation) is taken as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from admission import default_ports
from admission.api.kubernetes import admission_review, meta, pods
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import Denial
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.dra.diagnosis import absent_features
from admission.errors import MalformedObjectError
from admission.podpolicy import outside_queues
from admission.podpolicy.admission import Rules
from admission.review import provided_templates, reviewer
from admission.review.caches import ReviewCaches
from admission.simulation import claim_defaults, manifests, pod_claims, pods as simulation_pods, workload_queues
from admission.simulation.claim_defaults import Effect
from admission.simulation.manifests import Candidate, Store
from admission.simulation.pods import LaterWave
from admission.simulation.workload_queues import RefusedWorkload
from admission.workloads import gang_key, owner_chain, suspendable
from admission.workloads.gang_key import Identity

RULES = Rules(controller="muster")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGang:
    """A gang with a pod that was refused at admission.

    index: the place in the input of the pod, or of the object that it was made from (is_made).
    """

    index: int
    is_made: bool
    identity: Identity
    queue: QueueName
    denial: Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """The cluster that a list of objects describes.

    profile: its Kubernetes version. refusals: by gang, of the first refused pod. refused_workloads: those refused at
    their own creation, by their place in the input. invented: UIDs that are not in the input. notes: objects left out,
    and warnings of the webhook. problems: malformed objects, with their place in the list. effects: actions of
    ClaimPolicies and the webhook on claims and templates. later: by workload, its later waves (`LaterWave`), each alone
    in a cluster where nothing is in use. outside: by place in the input, the metered classes that pods take without
    entering a queue.
    """

    snapshot: Snapshot
    now: datetime
    profile: SchedulerProfile = compatibility.NEWEST
    refusals: Mapping[GangUid, RefusedGang] = field(default_factory=dict)
    refused_workloads: Mapping[int, RefusedWorkload] = field(default_factory=dict)
    invented: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    problems: tuple[tuple[int, MalformedObjectError], ...] = ()
    effects: tuple[Effect, ...] = ()
    later: tuple[tuple[LaterWave, "Expanded"], ...] = ()
    outside: Mapping[int, str] = field(default_factory=dict)


MOST_LATER_WAVES = 64
"""The most later waves that are looked at, twice if others run beside them; each takes a simulation of its own."""


def expand(
    objects: Sequence[Json],
    *,
    now: datetime | None = None,
    namespace: str = "default",
    profile: SchedulerProfile = compatibility.NEWEST,
) -> Expanded:
    """Return the cluster that the objects describe. now: by default a minute after the latest time in them.

    profile: their Kubernetes version.
    """
    store = manifests.read(objects, now=now, namespace=namespace, profile=profile)
    effects: list[Effect] = []
    if store.of_kind("ClaimPolicy"):
        objects, effects = claim_defaults.completed(objects, store)
        store = manifests.read(objects, now=now, namespace=namespace, profile=profile)
    queued = workload_queues.completed(objects, store)
    if queued.changes(objects, store):
        store = manifests.read(queued.objects, now=now, namespace=namespace, profile=profile, made=queued.made)
    without_pods = provided_templates.with_provided(manifests.snapshot(store))

    made = simulation_pods.candidates(store, without_pods)
    webhook = _Webhook(without_pods, queued.refused)
    with_pods, bodies = _admit([*store.pods, *made], webhook, store, without_pods)
    complete = pod_claims.with_ephemeral(pod_claims.with_claims(with_pods, without_pods.parents), bodies)
    return Expanded(
        snapshot=complete,
        now=store.now,
        profile=profile,
        refusals=webhook.refusals,
        refused_workloads=queued.refused,
        invented=frozenset(store.invented),
        notes=(
            *store.notes,
            *webhook.refused_without_pods(),
            *dict.fromkeys(webhook.warnings),
            *claim_defaults.template_differences(with_pods),
            *pod_claims.notes(with_pods, complete),
            *simulation_pods.runtime_class_notes(with_pods.pods.values(), store),
            *absent_features.notes(without_pods, profile),
        ),
        problems=tuple(store.problems),
        effects=(*effects, *dict.fromkeys(webhook.effects)),
        outside=webhook.outside,
        later=tuple(
            (wave, _alone(wave, store, with_pods, profile))
            for wave in islice(simulation_pods.later_waves(store, without_pods), MOST_LATER_WAVES)
        ),
    )


def _alone(wave: LaterWave, store: Store, snapshot: Snapshot, profile: SchedulerProfile) -> Expanded:
    """Return a cluster that has nothing but a later wave of a workload, and the claims without an owner.

    And pods that are on nodes with which some of the wave have to be: they take nothing, and keep no pod off.
    """
    own = manifests.read([wave.body], now=store.now, namespace=store.namespace, profile=profile)
    claims = {key: replace(one, allocation=None) for key, one in snapshot.claims.items() if not one.meta.owners}
    parents = manifests.snapshot(own).parents
    empty = replace(snapshot, pods={}, jobs={}, gangs={}, claims=claims, parents=parents)
    webhook = _Webhook(empty, {})
    made = simulation_pods.candidates(own, empty, suspendable.WITH_TEMPLATES.values())
    with_pods, bodies = _admit(made, webhook, store, empty)
    complete = pod_claims.with_ephemeral(pod_claims.with_claims(with_pods, snapshot.parents), bodies)
    return Expanded(
        snapshot=replace(complete, pods={**complete.pods, **_company(complete.pods.values(), snapshot)}),
        now=store.now,
        profile=profile,
        refusals=webhook.refusals,
        invented=frozenset({*store.invented, *own.invented}),
    )


# The webhook.


def _admit(
    found: Iterable[Candidate], webhook: "_Webhook", store: Store, snapshot: Snapshot
) -> tuple[Snapshot, list[Json]]:
    """Return a snapshot with the pods that are admitted, and their manifests, with all that admission adds to them."""
    completed = [*simulation_pods.as_stored(found, store)]
    admitted = [pod for pod in completed if webhook.admit(pod)]
    classes = store.of_kind("PriorityClass")
    decoded = [owner_chain.with_priority(pods.decode(pod.body), pod.body, classes) for pod in admitted]
    with_pods = replace(snapshot, pods={pod.meta.uid: pod for pod in decoded})
    return provided_templates.with_provided(with_pods), [pod.body for pod in admitted]


def _company(waiting: Iterable[Pod], snapshot: Snapshot) -> dict[Uid, Pod]:
    """Return the pods on nodes that the affinity of some pods is about, with nothing but where and what they are."""
    terms = {term for pod in waiting for term in pod.rules.affinity}
    found: dict[Uid, Pod] = {}
    for uid, pod in snapshot.pods.items():
        own = snapshot.namespaces.get(pod.meta.namespace)
        labels = own.meta.labels if own is not None else {}
        is_there = bool(pod.node) and not pod.finished and pod.meta.deleted is None
        if is_there and any(term.matches(pod.meta.namespace, pod.meta.labels, labels) for term in terms):
            meta_ = replace(pod.meta, annotations={}, owners=())
            found[uid] = Pod(meta=meta_, node=pod.node, phase=pod.phase, mirror=True)
    return found


class _Webhook:
    """The webhook's two halves, called for each pod as if it were created now.

    refused: the workloads that are refused themselves; they make no pods.
    """

    def __init__(self, snapshot: Snapshot, refused: Mapping[int, RefusedWorkload]) -> None:
        self.refusals: dict[GangUid, RefusedGang] = {}
        self.warnings: list[str] = []
        self.effects: list[Effect] = []
        self.outside: dict[int, str] = {}
        self._refused = refused
        self._snapshot = snapshot
        self._view = default_ports.FrozenView(snapshot)
        self._caches = ReviewCaches()

    def admit(self, pod: Candidate) -> bool:
        """Complete a pod and judge it; bound, finished and gated pods have passed admission already."""
        if _is_past_admission(pod):
            return True
        workload = self._refused.get(pod.index) if pod.maker else None
        if workload is not None:
            self._keep(self._refusal(pod, workload.denial, workload.queue))
            return False
        source = pod.maker or f"Pod {meta.name_in(pod.body)}"
        verdict = reviewer.mutate(admission_review.pod_creation(pod.body), self._view, caches=self._caches)
        if verdict.denial is None:
            pod.body = json_patch.apply(pod.body, verdict.patch)
            if not _is_gated(pod):
                # A pod without a queue is in no gang of the result, so its additions are listed here.
                self.effects += claim_defaults.patch_effects(source, verdict.patch)
            verdict = reviewer.validate(
                admission_review.pod_creation(pod.body), self._view, rules=RULES, caches=self._caches
            )
        self.warnings += [f"{source}: {text.removeprefix('muster: ')}" for text in verdict.warnings]
        self.effects += claim_defaults.audit_effects(source, verdict.annotations)
        if outside_queues.NOTE in verdict.annotations:
            self.outside[pod.index] = verdict.annotations[outside_queues.NOTE]
        if verdict.denial is not None:
            self._keep(self._refusal(pod, verdict.denial))
        return verdict.denial is None

    def refused_without_pods(self) -> Iterator[str]:
        """Yield a note for each refused workload whose pods are not simulated."""
        reported = {refusal.index for refusal in self.refusals.values()}
        for index, workload in self._refused.items():
            if index not in reported:
                yield f"{workload.source} is refused: {workload.denial.reason}: {workload.denial.message}"

    def _keep(self, refusal: RefusedGang) -> None:
        self.refusals.setdefault(refusal.identity.uid, refusal)

    def _refusal(self, pod: Candidate, denial: Denial, queue: QueueName = QueueName("")) -> RefusedGang:
        # The gang must be named even if the rest of the pod is malformed.
        pod_meta = Pod(meta=meta.decode(Reader(pod.body)))
        identity = gang_key.identify(pod_meta, self._snapshot)
        return RefusedGang(
            index=pod.index,
            is_made=bool(pod.maker),
            identity=identity,
            queue=QueueName(pod_meta.queue) or queue,
            denial=denial,
        )


def _is_past_admission(pod: Candidate) -> bool:
    reader = Reader(pod.body)
    # A pod that is still to be made is bound by nobody, though its template may ask for that.
    bound = not pod.maker and bool(reader.child("spec").text("nodeName"))
    return bound or reader.child("status").text("phase") in pods.FINISHED or (pod.exists and _is_gated(pod))


def _is_gated(pod: Candidate) -> bool:
    gates = Reader(pod.body).child("spec").children("schedulingGates")
    return any(gate.text("name") == names.GATE for gate in gates)
