"""The expected pods of suspended workloads: those that their templates would yield.

A workload that is suspended until its gang may start has no pods, but scheduling knows gangs by their pods. So the
snapshot of a cycle gets the pods that would be created, gated, as the webhook would complete them, and their claims.
Scheduling treats them like real ones; steps that write to pods and claims leave them out (`names.is_expected`).
Expected pods with a slot stay until real pods take it over (`workloads.pod_replacement`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice
from typing import Any

from admission import default_ports
from admission.accounting.books import Book
from admission.api.kubernetes import pods
from admission.api.kubernetes.admission_review import Review
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.muster.ledger_entries import Placement
from admission.api.scheduling import scheduling_rules
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.errors import MalformedObjectError, RetryError
from admission.incremental import Memo, are_same
from admission.podpolicy import admission
from admission.review import provided_templates, reviewer
from admission.review.caches import ReviewCaches
from admission.workloads import gang_key, owner_chain, suspendable
from admission.workloads.gang_key import LARGEST_SIZE
from admission.workloads.kinds import podgroup
from admission.workloads.suspendable import HeldWorkloads, Workload

SUFFIX = " (expected)"
"""The end of an expected claim's name, which no real name can have."""

MAKER = min(admission.JOB_CONTROLLERS)
"""The user name of reviews for pods of a Job; the Job's user is in its template."""


@dataclass(slots=True, kw_only=True, eq=False)
class _ExpectedPods:
    """The expected pods of one workload. found, inputs: what they were derived from. problem: why there are none.

    Not over `admission.incremental`: while a namespace is not observed the pods that were derived before stay.

    groups: the PodGroups that the pods name, by key, as they were then; their claims are the pods', too. named: the
    claim templates that the pods name, by `namespace/name`. claims: those that would be created for the pods from the
    templates at the last refresh.
    """

    found: object
    inputs: tuple[object, ...]
    pods: Mapping[Uid, Pod]
    problem: Hold | Denial | None = None
    groups: Mapping[str, Parent | None] = field(default_factory=dict)
    named: tuple[str, ...] = field(init=False)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    _templates: tuple[ClaimTemplate | None, ...] = ()

    def __post_init__(self) -> None:
        named = {_template_of(pod, claim) for pod in self.pods.values() for claim in pod.claims if claim.template}
        self.named = tuple(sorted(named))

    def has_seen(self, groups: Mapping[str, Parent]) -> bool:
        """Return whether the PodGroups that the pods name are those that the pods were derived from."""
        return all(groups.get(key) is group for key, group in self.groups.items())

    def refresh(self, templates: Mapping[str, ClaimTemplate]) -> bool:
        """Derive the claims again if a template has changed; return whether one has."""
        now = tuple(map(templates.get, self.named))
        if are_same(now, self._templates):
            return False
        self._templates = now
        found = (claim for pod in self.pods.values() for claim in _claims_of(pod, templates))
        self.claims = {claim.meta.key: claim for claim in found}
        return True


Part = tuple[_ExpectedPods, frozenset[Uid] | None]
"""The pods of a workload, and which of them are expected; None for all."""


@dataclass(slots=True)
class PendingPods:
    """The expected pods as of the last cycle. One per process.

    They do not depend on who leads, and deriving them for ten thousand workloads takes seconds: so a process that loses
    the lease and leads again continues from there.

    Rule: `add_to` derives all of it from a snapshot and the book; `without_released` only drops pods of it.
    """

    _held: HeldWorkloads = field(default_factory=HeldWorkloads)
    _problems: dict[GangUid, Hold | Denial] = field(default_factory=dict)
    _loose: tuple[Workload, ...] = ()
    _review_caches: ReviewCaches = field(default_factory=ReviewCaches)
    _by_workload: dict[Uid, _ExpectedPods] = field(default_factory=dict)
    _parts: list[Part] = field(default_factory=list)
    _pods: Mapping[Uid, Pod] = field(default_factory=dict)
    _claims: Mapping[str, Claim] = field(default_factory=dict)
    """The pods and claims of all parts."""
    _basis: Memo[None, tuple[object, ...]] = field(default_factory=Memo)
    """The objects by which the webhook completes pods, without their versions."""
    _contents: Memo[None, tuple[object, ...]] = field(default_factory=lambda: Memo(by_value=True))
    """The same, as one object while their content is equal, so that workloads compare it by identity."""
    _kept: set[Uid] = field(default_factory=set)
    """The pods that are expected only because they have a slot."""
    _provided: Memo[frozenset[str], Mapping[str, ClaimTemplate]] = field(default_factory=Memo)
    """The templates that policies will provide, by the names of the missing ones, which say all that pods need."""
    _merged_pods: Memo[None, Mapping[Uid, Pod]] = field(default_factory=Memo)
    _merged_claims: Memo[None, Mapping[str, Claim]] = field(default_factory=Memo)

    @property
    def problems(self) -> Mapping[GangUid, Hold | Denial]:
        """Return why workloads cannot be planned from their templates, by gang."""
        return self._problems

    @property
    def loose(self) -> Sequence[Workload]:
        """Return the workloads that another client has resumed and that may not run yet."""
        return self._loose

    def add_to(self, snapshot: Snapshot, book: Book) -> Snapshot:
        """Return the snapshot with the expected pods and their claims.

        If nothing changed they are the same objects as before, since there may be tens of thousands of them.
        """
        workloads = self._held.update(snapshot)
        self._loose = tuple(one for one in workloads if one.is_resumed_externally and not one.is_over)
        parts = list(self._find_parts(workloads, snapshot, book))
        self._by_workload = {names.workload_of(uid): found for found, _ in parts for uid in islice(found.pods, 1)}
        self._kept = {uid for _, kept in parts for uid in kept or ()}
        self._problems = {}
        for found, kept in parts:
            if found.problem is not None and kept is None:
                self._problems |= {gang_key.identify(pod, snapshot).uid: found.problem for pod in found.pods.values()}
        self._merge_parts(parts, snapshot)
        if not self._pods:
            return snapshot
        pods_, claims = (snapshot.pods, self._pods), (snapshot.claims, self._claims)
        return replace(
            snapshot,
            pods=self._merged_pods.get(None, pods_, lambda: {**pods_[0], **pods_[1]}),
            claims=self._merged_claims.get(None, claims, lambda: {**claims[0], **claims[1]}),
        )

    def without_released(self, snapshot: Snapshot, book: Book) -> Snapshot:
        """Return a snapshot of `add_to` without the pods whose slots were taken over or given back since."""
        released = {uid for uid in self._kept if uid not in book.owners}
        if not released:
            return snapshot
        self._kept -= released
        pods_ = {uid: pod for uid, pod in snapshot.pods.items() if uid not in released}
        claims = {key: claim for key, claim in snapshot.claims.items() if not _belongs_to(claim, released)}
        return replace(snapshot, pods=pods_, claims=claims)

    def _find_parts(self, workloads: Sequence[Workload], snapshot: Snapshot, book: Book) -> Iterator[Part]:
        """Yield the workloads with expected pods: those that wait, and those whose expected pods have slots."""
        seats, with_pods = _seated(book), _with_pods(snapshot, book) if workloads else set[Uid]()
        inputs = self._inputs(snapshot) if workloads else ()
        for workload in workloads:
            uid = workload.meta.uid
            kept = seats.get(uid)
            waits = workload.is_waiting and uid not in with_pods
            if workload.is_over or not (waits or (kept and (workload.is_waiting or workload.is_started))):
                continue
            found = self._expected_of(workload, snapshot, inputs)
            if found is not None and found.pods and (waits or _is_current_gang(found, kept or (), snapshot, book)):
                yield found, None if waits else kept

    def _expected_of(self, workload: Workload, snapshot: Snapshot, inputs: tuple[object, ...]) -> _ExpectedPods | None:
        """Return the pods of a workload; None while its namespace is not observed."""
        known = self._by_workload.get(workload.meta.uid)
        groups = snapshot.parents.get(podgroup.GANGS.key, {})
        if known is not None and known.found is workload.obj and known.inputs is inputs and known.has_seen(groups):
            return known
        try:
            made = _make_pods(workload, snapshot, self._review_caches)
        except RetryError:
            return known
        except MalformedObjectError as error:
            made = f"nobody can say what pods would come of it: {error}"
        if isinstance(made, dict):
            named = {_group_key(pod): groups.get(_group_key(pod)) for pod in made.values() if pod.group}
            return _ExpectedPods(found=workload.obj, inputs=inputs, pods=made, groups=named)
        problem = Hold(HoldReason.NOT_HOLDABLE, made) if isinstance(made, str) else made
        return _ExpectedPods(found=workload.obj, inputs=inputs, pods=_placeholder(workload), problem=problem)

    def _inputs(self, snapshot: Snapshot) -> tuple[object, ...]:
        """Return the objects by which the webhook completes pods."""
        now = (snapshot.queues, snapshot.policies, snapshot.namespaces, snapshot.priorities)
        return self._basis.get(None, now, lambda: self._as_known(_content(snapshot)))

    def _as_known(self, content: tuple[object, ...]) -> tuple[object, ...]:
        return self._contents.get(None, content, lambda: content)

    def _merge_parts(self, parts: list[Part], snapshot: Snapshot) -> None:
        """Gather the pods and claims of all parts, unless they are unchanged.

        Derived from the list of parts and the claim templates that these name. Not over `admission.incremental`: a part
        follows its templates in place, so that one that changed costs no look at all pods.
        """
        same = len(parts) == len(self._parts) and all(
            one[0] is other[0] and one[1] == other[1] for one, other in zip(parts, self._parts, strict=True)
        )
        # `_parts` is set last, so that after an exception in between the next cycle starts over.
        self._parts = []
        if not same:
            self._pods = {uid: pod for part in parts for uid, pod in _expected(part)}
        templates = self._templates(snapshot, parts)
        changed = [found.refresh(templates) for found, _ in parts]
        if any(changed) or not same:
            self._claims = {
                key: claim
                for found, kept in parts
                for key, claim in found.claims.items()
                if kept is None or _belongs_to(claim, kept)
            }
        self._parts = parts

    def _templates(self, snapshot: Snapshot, parts: Sequence[Part]) -> Mapping[str, ClaimTemplate]:
        """Return the claim templates, with those that ClaimPolicies will provide once the pods exist."""
        if not snapshot.policies:
            return snapshot.templates
        missing = frozenset(key for found, _ in parts for key in found.named if key not in snapshot.templates)
        if not missing:
            return snapshot.templates

        def provide() -> Mapping[str, ClaimTemplate]:
            made = provided_templates.with_provided(replace(snapshot, pods=self._pods)).templates
            return {key: made[key] for key in missing if key in made}

        provided = self._provided.get(missing, (self._inputs(snapshot),), provide)
        self._provided.keep_only((missing,))
        return {**snapshot.templates, **provided}


def _expected(part: Part) -> Iterator[tuple[Uid, Pod]]:
    found, kept = part
    return ((uid, pod) for uid, pod in found.pods.items() if kept is None or uid in kept)


def _claims_of(pod: Pod, templates: Mapping[str, ClaimTemplate]) -> Iterator[Claim]:
    """Yield the claims that would be created for a pod: not those that its PodGroup has."""
    for named in pod.claims:
        template = templates.get(_template_of(pod, named)) if named.template is not None else None
        if template is not None and pod.generated_claims.get(named.name, "").endswith(SUFFIX):
            yield _claim(pod, named, template)


def _group_key(pod: Pod) -> str:
    return f"{pod.meta.namespace}/{pod.group}"


def _template_of(pod: Pod, claim: PodClaim) -> str:
    return f"{pod.meta.namespace}/{claim.template}"


def _belongs_to(claim: Claim, pods_: Collection[Uid]) -> bool:
    return names.is_expected(claim.meta.uid) and any(owner.uid in pods_ for owner in claim.meta.owners)


def _seated(book: Book) -> dict[Uid, frozenset[Uid]]:
    """Return the expected pods with a slot in the ledger, by workload."""
    found: dict[Uid, set[Uid]] = {}
    for placement in book.placements.values():
        for uid in placement.seats:
            if names.is_expected(uid):
                found.setdefault(names.workload_of(uid), set()).add(uid)
    return {workload: frozenset(uids) for workload, uids in found.items()}


def _is_current_gang(found: _ExpectedPods, kept: Collection[Uid], snapshot: Snapshot, book: Book) -> bool:
    """Return whether the expected pods still belong to the gang that holds their slots, not to that of a next try."""
    present = (found.pods[uid] for uid in kept if uid in found.pods)
    return any(book.owners[pod.meta.uid] == gang_key.identify(pod, snapshot).uid for pod in present)


def _with_pods(snapshot: Snapshot, book: Book) -> set[Uid]:
    """Return the UIDs of objects with pods that have not ended: the pods' controllers, and the controllers of these.

    An object in between may be deleted before its pods, as the RayCluster of a RayJob; the ledger still has the gang of
    their claims.
    """
    found = {gang_key.maker(uid) for uid, placement in book.placements.items() if _is_used(placement, snapshot)}
    for pod in snapshot.pods.values():
        owner = pod.meta.controller
        if owner is None or pod.finished or owner.uid in found:
            continue
        found.add(owner.uid)
        maker = owner_chain.lookup(owner, snapshot)
        controller = maker.meta.controller if maker is not None else None
        if controller is not None:
            found.add(controller.uid)
    return found


def _is_used(placement: Placement, snapshot: Snapshot) -> bool:
    """Return whether pods that have not ended use the claims of a gang, or take anything of nodes for it."""
    known = (snapshot.claims.get(holding.claim) for holding in placement.holdings.values())
    users = (Uid(uid) for claim in known if claim is not None for uid in claim.reserved_for)
    takers = (owner for uid in placement.holdings if (owner := names.pod_of_resources_claim(uid)) is not None)
    found = (snapshot.pods.get(uid) for uid in chain(users, takers))
    return any(pod is not None and not pod.finished for pod in found)


def _content(snapshot: Snapshot) -> tuple[object, ...]:
    """Return the content of queues, policies, namespaces and priorities without their versions."""
    queues = {name: replace(queue, meta=Meta(name=name)) for name, queue in snapshot.queues.items()}
    policies = {name: replace(one, meta=Meta(name=name)) for name, one in snapshot.policies.items()}
    namespaces = {name: one.labels for name, one in snapshot.namespaces.items()}
    priorities = {name: (one.value, one.is_default) for name, one in snapshot.priorities.items()}
    return queues, policies, namespaces, priorities


# The pods of a workload.


def expected(
    workload: Workload, snapshot: Snapshot, known: ReviewCaches
) -> tuple[dict[Uid, Pod], dict[str, Claim]] | Denial | str:
    """Return the pods of a workload's templates, by UID, and their claims, by name; or why there are none.

    Raises MalformedObjectError, and RetryError while the namespace is not observed.
    """
    made = _make_pods(workload, snapshot, known)
    if not isinstance(made, dict):
        return made
    templates = snapshot.templates
    if snapshot.policies:
        templates = provided_templates.with_provided(replace(snapshot, pods=made)).templates
    claims = (claim for pod in made.values() for claim in _claims_of(pod, templates))
    return made, {claim.meta.key: claim for claim in claims}


def _make_pods(workload: Workload, snapshot: Snapshot, known: ReviewCaches) -> dict[Uid, Pod] | Denial | str:
    """Return the pods of a workload, by UID, or why there are none. Raises MalformedObjectError and RetryError."""
    templates = [template for template in workload.templates if template.pods > 0]
    count = sum(template.pods for template in templates)
    if count > LARGEST_SIZE:
        return f"it makes {count} pods at a time, and a gang has at most {LARGEST_SIZE}; write a smaller number"
    found: dict[Uid, Pod] = {}
    for template in templates:
        first_pod = _first_pod(workload, template, snapshot, known)
        if isinstance(first_pod, Denial):
            return first_pod
        group = snapshot.parents.get(podgroup.GANGS.key, {}).get(_group_key(first_pod))
        for number in range(template.pods):
            pod = _numbered_pod(first_pod, template, number, names.expected_pod(workload.meta.uid, len(found)))
            pod = replace(pod, generated_claims=_generated_claims(pod, group))
            if (template.exclusive or template.has_own_nodes) or (template.numbers_pods and pod.rules.concern_pods):
                pod = _with_own_rules(pod, _body(workload, template, number))
            found[pod.meta.uid] = pod
    return found


def _first_pod(workload: Workload, template: PodTemplate, snapshot: Snapshot, known: ReviewCaches) -> Pod | Denial:
    """Return a pod of a template as the webhook would complete it, or why it would not be admitted."""
    of_job = workload.kind is suspendable.JOB
    obj = _body(workload, template, 0)
    user = workload.meta.annotations.get(names.USER)
    if user and not of_job:
        obj["metadata"]["annotations"] |= {names.USER: user}
    verdict = reviewer.mutate(_review(obj, MAKER if of_job else ""), default_ports.FrozenView(snapshot), caches=known)
    if verdict.denial is not None:
        return verdict.denial
    obj = json_patch.apply(obj, verdict.patch)
    pod = owner_chain.with_priority(pods.decode(obj), obj, snapshot.priorities)
    return pod if pod.gated else replace(pod, gates=(*pod.gates, names.GATE))


def _body(workload: Workload, template: PodTemplate, number: int) -> dict[str, Any]:
    return suspendable.pod_body(
        template,
        number,
        owner=workload.kind.owner(workload.meta),
        namespace=workload.meta.namespace,
        uid=names.expected_pod(workload.meta.uid, 0),
        created=workload.meta.created.isoformat(),
    )


def _with_own_rules(pod: Pod, body: Json) -> Pod:
    """Return a pod with the rules and the node selector of its own number, which may name its part."""
    spec = Reader(body).child("spec")
    labels = {**pod.meta.labels, **Reader(body).child("metadata").pairs("labels")}
    rules = scheduling_rules.decode(spec, namespace=pod.meta.namespace, labels=labels)
    node_selector = {**pod.node_selector, **spec.pairs("nodeSelector")}
    return replace(pod, meta=replace(pod.meta, labels=labels), rules=rules, node_selector=node_selector)


def _review(obj: Json, username: str) -> Review:
    data = obj["metadata"]
    return Review(
        uid=data["uid"],
        group="",
        version="v1",
        resource="pods",
        kind="Pod",
        operation="CREATE",
        namespace=data["namespace"],
        name=data["name"],
        username=username,
        obj=obj,
    )


def _numbered_pod(pod: Pod, template: PodTemplate, number: int, uid: Uid) -> Pod:
    name = template.pod_name(number)
    created = pod.meta.created + timedelta(microseconds=number)
    own = suspendable.numbered_labels(template, number, namespace=pod.meta.namespace) if template.numbers_pods else {}
    labels = {**pod.meta.labels, **own} if own else pod.meta.labels
    meta = replace(pod.meta, name=name, uid=uid, created=created, labels=labels)
    return replace(pod, meta=meta)


def _generated_claims(pod: Pod, group: Parent | None) -> dict[str, str]:
    """Return the claims that are made for a pod from templates, by its own names of them.

    A claim that its PodGroup has, by the same name and template, is the group's one, which is made before any pod
    exists (`pkg/controller/resourceclaim`, syncPodGroup; BindTo of `k8s.io/dynamic-resource-allocation/resourceclaim`).
    Until then the pod has none.
    """
    found = {}
    for claim in pod.claims:
        if claim.template is None:
            continue
        if group is None or claim not in group.claims:
            found[claim.name] = f"{pod.meta.name}-{claim.name}{SUFFIX}"
        elif claim.name in group.generated_claims:
            found[claim.name] = group.generated_claims[claim.name]
    return found


def _claim(pod: Pod, named: PodClaim, template: ClaimTemplate) -> Claim:
    made = Meta(
        name=pod.generated_claims[named.name],
        namespace=pod.meta.namespace,
        uid=names.expected_claim(pod.meta.uid, named.name),
        owners=(Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid, controller=True),),
        created=pod.meta.created,
    )
    return Claim(meta=made, spec=template.spec)


def _placeholder(workload: Workload) -> dict[Uid, Pod]:
    """Return one pod for a workload whose pods cannot be planned, so that its gang has a status with the reason."""
    labels: dict[str, str] = {}
    for template in workload.templates:
        given = (template.body.get("metadata") or {}).get("labels") or {}
        labels = labels or {key: str(text) for key, text in given.items() if key == names.QUEUE}
    uid = names.expected_pod(workload.meta.uid, 0)
    own = replace(workload.meta, uid=uid, labels=labels, owners=(workload.kind.owner(workload.meta),), annotations={})
    return {uid: Pod(meta=own, gates=(names.GATE,))}
