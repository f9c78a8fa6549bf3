"""The expected pods of suspended workloads: those that their templates would yield.

A workload that is suspended until its gang may start has no pods, but scheduling knows gangs by their pods. So the
snapshot of a cycle gets the pods that would be created, gated, as the webhook would complete them, and their claims.
Scheduling treats them like real ones; steps that write to pods and claims leave them out (`names.is_expected`).
Expected pods with a slot stay until real pods take it over (`workloads.pod_replacement`).

There may be ten thousand such workloads, so only those are looked at of which something has changed. What they depend
on is followed by hand: the pods of one follow from objects that it names, from what its own pods do and from the
ledger at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, Self, TypeVar

from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Merged, Snapshot, Version, changed, without
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.errors import MalformedObjectError, RetryError
from admission.incremental import Inverted, Memo, are_same
from admission.review import expected_pods, provided_templates
from admission.review.caches import ReviewCaches
from admission.workloads import gang_key, owner_chain
from admission.workloads.kinds import podgroup
from admission.workloads.suspendable import HeldWorkloads, Workload

K = TypeVar("K")

NO_GROUPS: Mapping[str, Parent] = {}


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
        claims = ((pod, claim) for pod in self.pods.values() for claim in pod.claims)
        self.named = tuple(sorted({expected_pods.template_of(pod, one) for pod, one in claims if one.template}))

    def has_seen(self, groups: Mapping[str, Parent]) -> bool:
        """Return whether the PodGroups that the pods name are those that the pods were derived from."""
        return all(groups.get(key) is group for key, group in self.groups.items())

    def follows_from(self, workload: Workload, inputs: object, groups: Mapping[str, Parent]) -> bool:
        """Return whether the pods were derived from all of this."""
        return self.found is workload.obj and self.inputs is inputs and self.has_seen(groups)

    def refresh(self, templates: Mapping[str, ClaimTemplate]) -> None:
        """Derive the claims again if a template has changed."""
        now = tuple(map(templates.get, self.named))
        if are_same(now, self._templates):
            return
        found = (claim for pod in self.pods.values() for claim in expected_pods.claims_of(pod, templates))
        self.claims = {claim.meta.key: claim for claim in found}
        self._templates = now


Part = tuple[_ExpectedPods, frozenset[Uid] | None]
"""The pods of a workload, and which of them are expected; None for all."""


class _Shown(NamedTuple):
    """The pods of a workload, and their claims, as they are in the snapshot."""

    pods: Mapping[Uid, Pod]
    claims: Mapping[str, Claim]

    @classmethod
    def of(cls, part: Part) -> Self:
        found, kept = part
        if kept is None:
            return cls(found.pods, found.claims)
        pods = {uid: pod for uid, pod in found.pods.items() if uid in kept}
        return cls(pods, {key: claim for key, claim in found.claims.items() if _belongs_to(claim, kept)})


NOTHING = _Shown({}, {})


class _Makers:
    """The objects with pods that have not ended: the pods' controllers, and the controllers of these.

    Rule: `update` alone changes it.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._owners: Counter[Owner] = Counter()
        """How many such pods each controller has."""
        self._above: dict[Owner, Uid] = {}
        """The controllers of these, as far as they are seen and have one."""
        self._by_uid: dict[Uid, set[Owner]] = {}
        self._found: Counter[Uid] = Counter()

    def __contains__(self, uid: object) -> bool:
        return uid in self._found

    def update(self, snapshot: Snapshot) -> set[Uid]:
        """Follow the pods and their owners; return the objects that may have come or gone here."""
        before, touched = self._snapshot, set[Owner]()
        pods = changed(before.pods, snapshot.pods)
        for uid in pods:
            for objects, times in ((before.pods, -1), (snapshot.pods, 1)):
                pod = objects.get(uid)
                owner = pod.meta.controller if pod is not None and not pod.finished else None
                if owner is not None:
                    touched.add(owner)
                    _count(self._owners, owner, times)
        uids: set[str] = {*pods, *changed(before.jobs, snapshot.jobs)}
        for kind in {**before.parents, **snapshot.parents}:
            uids.update(changed(before.parents.get(kind, NO_GROUPS), snapshot.parents.get(kind, NO_GROUPS)))
        touched.update(owner for uid in uids for owner in self._by_uid.get(Uid(uid), ()))
        self._snapshot = snapshot
        return {uid for owner in touched for uid in self._follow(owner)}

    def _follow(self, owner: Owner) -> Iterator[Uid]:
        """Bring what an owner says up to date, and yield the objects that it concerns."""
        is_known, was_known = owner in self._owners, owner in self._by_uid.get(owner.uid, ())
        before = self._above.pop(owner, None)
        if was_known:
            _count(self._found, owner.uid, -1)
            self._by_uid[owner.uid].discard(owner)
            if not self._by_uid[owner.uid]:
                del self._by_uid[owner.uid]
        if before is not None:
            _count(self._found, before, -1)
            yield before
        if is_known:
            maker = owner_chain.lookup(owner, self._snapshot)
            controller = maker.meta.controller if maker is not None else None
            self._by_uid.setdefault(owner.uid, set()).add(owner)
            _count(self._found, owner.uid, 1)
            if controller is not None:
                self._above[owner] = controller.uid
                _count(self._found, controller.uid, 1)
                yield controller.uid
        yield owner.uid


@dataclass(slots=True)
class PendingPods:
    """The expected pods as of the last cycle. One per process.

    They do not depend on who leads, and deriving them for ten thousand workloads takes seconds: so a process that loses
    the lease and leads again continues from there.

    Rule: `add_to` derives all of it from a snapshot and the book; `without_released` only drops pods of it.
    """

    _held: HeldWorkloads = field(default_factory=HeldWorkloads)
    _makers: _Makers = field(default_factory=_Makers)
    _seats: Inverted[Placement, Uid, Uid] = field(default_factory=lambda: Inverted(_expected_seats))
    """By workload, its expected pods with a slot in the ledger."""
    _booked: Inverted[Placement, Uid, GangUid] = field(default_factory=lambda: Inverted(_by_maker))
    """By object that makes a gang's pods, its gangs in the ledger."""
    _loose: dict[Uid, Workload] = field(default_factory=dict)
    _review_caches: ReviewCaches = field(default_factory=ReviewCaches)
    _parts: dict[Uid, Part] = field(default_factory=dict)
    """By workload, what is expected of it."""
    _unsettled: set[Uid] = field(default_factory=set)
    """The workloads that are looked at in each cycle, as those that have slots or cannot be planned."""
    _naming: dict[str, set[Uid]] = field(default_factory=dict)
    """By claim template, `namespace/name`, the workloads whose expected pods name it."""
    _named: dict[str, ClaimTemplate | None] = field(default_factory=dict)
    """The templates that are named, as of the last cycle."""
    _stale: set[Uid] = field(default_factory=set)
    """The workloads of which something else is expected than what is shown."""
    _shown: dict[Uid, _Shown] = field(default_factory=dict)
    """By workload, its part in the pods and claims below."""
    _rivals: set[Uid] = field(default_factory=set)
    """The workloads of which claims have the names of others', as of a Job and a JobSet of one name."""
    _groups: Mapping[str, Parent] = field(default_factory=dict)
    _pods: Version[Uid, Pod] = field(default_factory=Version)
    _claims: Version[str, Claim] = field(default_factory=Version)
    """The pods and claims of all parts."""
    _inputs: tuple[object, ...] = ()
    _basis: Memo[None, tuple[object, ...]] = field(default_factory=Memo)
    """The objects by which the webhook completes pods, without their versions."""
    _contents: Memo[None, tuple[object, ...]] = field(default_factory=lambda: Memo(by_value=True))
    """The same, as one object while their content is equal, so that workloads compare it by identity."""
    _kept: set[Uid] = field(default_factory=set)
    """The pods that are expected only because they have a slot."""
    _problems: dict[GangUid, Hold | Denial] = field(default_factory=dict)
    _provided: Memo[frozenset[str], Mapping[str, ClaimTemplate]] = field(default_factory=Memo)
    """The templates that policies will provide, by the names of the missing ones, which say all that pods need."""
    _merged_pods: Merged[Uid, Pod] = field(default_factory=Merged)
    _merged_claims: Merged[str, Claim] = field(default_factory=Merged)

    @property
    def problems(self) -> Mapping[GangUid, Hold | Denial]:
        """Return why workloads cannot be planned from their templates, by gang."""
        return self._problems

    @property
    def loose(self) -> Sequence[Workload]:
        """Return the workloads that another client has resumed and that may not run yet."""
        return tuple(self._loose.values())

    def add_to(self, snapshot: Snapshot, book: Book) -> Snapshot:
        """Return the snapshot with the expected pods and their claims.

        If nothing changed they are the same objects as before, since there may be tens of thousands of them.
        """
        touched = self._touched(snapshot, book)
        # Until all was followed: after an exception in between the same is looked at again.
        self._unsettled |= touched
        for uid in sorted(touched):
            self._look_at(uid, snapshot, book)
        self._exchange(self._found_templates(snapshot))
        self._note_unsettled(touched, snapshot)
        if not self._pods:
            self._merged_pods, self._merged_claims = Merged(), Merged()
            return snapshot
        return replace(
            snapshot,
            pods=self._merged_pods.update(snapshot.pods, self._pods),
            claims=self._merged_claims.update(snapshot.claims, self._claims),
        )

    def without_released(self, snapshot: Snapshot, book: Book) -> Snapshot:
        """Return a snapshot of `add_to` without the pods whose slots were taken over or given back since."""
        released = {uid for uid in self._kept if uid not in book.owners}
        if not released:
            return snapshot
        self._kept -= released
        shown = (self._shown[uid] for uid in map(names.workload_of, released) if uid in self._shown)
        claims = {key for one in shown for key, claim in one.claims.items() if _belongs_to(claim, released)}
        return replace(snapshot, pods=without(snapshot.pods, released), claims=without(snapshot.claims, claims))

    # Which workloads are looked at, and what is expected of one.

    def _touched(self, snapshot: Snapshot, book: Book) -> set[Uid]:
        """Return the workloads of which something has changed that their expected pods depend on."""
        touched = self._unsettled | self._held.update(snapshot)
        if not self._held.workloads and not self._parts:
            # What was followed begins anew with the next workload; until then it would keep an old snapshot.
            self._makers, self._seats, self._booked = _Makers(), Inverted(_expected_seats), Inverted(_by_maker)
            return touched
        for named in (self._seats, self._booked):
            before = named.members
            touched.update(changed(before, named.update(book.placements)))
        touched |= self._makers.update(snapshot)
        inputs, groups = self._content(snapshot), snapshot.parents.get(podgroup.GANGS.key, NO_GROUPS)
        if inputs is not self._inputs:
            touched |= self._held.workloads.keys()
        if groups is not self._groups:
            touched.update(uid for uid, (found, _) in self._parts.items() if not found.has_seen(groups))
        self._inputs, self._groups = inputs, groups
        known = (self._held.workloads, self._parts, self._loose, self._unsettled)
        return {uid for uid in touched if any(uid in one for one in known)}

    def _look_at(self, uid: Uid, snapshot: Snapshot, book: Book) -> None:
        """Bring what is expected of a workload up to date."""
        workload, before = self._held.workloads.get(uid), self._parts.get(uid)
        self._loose.pop(uid, None)
        if workload is not None and workload.is_resumed_externally and not workload.is_over:
            self._loose[uid] = workload
        part = None if workload is None else self._part(workload, before, snapshot, book)
        if part == before:
            return
        self._stale.add(uid)
        for key in before[0].named if before is not None else ():
            self._naming[key].discard(uid)
            if not self._naming[key]:
                del self._naming[key]
        self._parts.pop(uid, None)
        if part is not None:
            self._parts[uid] = part
            for key in part[0].named:
                self._naming.setdefault(key, set()).add(uid)

    def _part(self, workload: Workload, before: Part | None, snapshot: Snapshot, book: Book) -> Part | None:
        """Return what is expected of a workload: of one that waits, or whose expected pods have slots."""
        uid = workload.meta.uid
        kept = self._seats.members.get(uid)
        waits = workload.is_waiting and not self._has_pods(uid, snapshot, book)
        if workload.is_over or not (waits or (kept and (workload.is_waiting or workload.is_started))):
            return None
        found = self._expected_of(workload, before[0] if before is not None else None, snapshot)
        if found is None or not found.pods or not (waits or _is_current_gang(found, kept or (), snapshot, book)):
            return None
        return found, None if waits else kept

    def _has_pods(self, uid: Uid, snapshot: Snapshot, book: Book) -> bool:
        """Return whether pods of a workload have not ended.

        An object in between may be deleted before its pods, as the RayCluster of a RayJob; the ledger still has the
        gang of their claims.
        """
        gangs = self._booked.members.get(uid, ())
        return uid in self._makers or any(_is_used(book.placements[gang], snapshot) for gang in gangs)

    def _expected_of(self, workload: Workload, known: _ExpectedPods | None, snapshot: Snapshot) -> _ExpectedPods | None:
        """Return the pods of a workload; None while its namespace is not observed. known: those before."""
        groups, inputs = self._groups, self._inputs
        if known is not None and known.follows_from(workload, inputs, groups):
            return known
        try:
            made = expected_pods.make_pods(workload, snapshot, self._review_caches)
        except RetryError:
            return known
        except MalformedObjectError as error:
            made = f"nobody can say what pods would come of it: {error}"
        if isinstance(made, dict):
            keys = {expected_pods.group_key(pod) for pod in made.values() if pod.group}
            named = {key: groups.get(key) for key in keys}
            return _ExpectedPods(found=workload.obj, inputs=inputs, pods=made, groups=named)
        problem = Hold(HoldReason.NOT_HOLDABLE, made) if isinstance(made, str) else made
        pods = expected_pods.placeholder(workload)
        return _ExpectedPods(found=workload.obj, inputs=inputs, pods=pods, problem=problem)

    def _content(self, snapshot: Snapshot) -> tuple[object, ...]:
        """Return the objects by which the webhook completes pods."""
        now = (snapshot.queues, snapshot.policies, snapshot.namespaces, snapshot.priorities)
        return self._basis.get(None, now, lambda: self._as_known(_content(snapshot)))

    def _as_known(self, content: tuple[object, ...]) -> tuple[object, ...]:
        return self._contents.get(None, content, lambda: content)

    def _note_unsettled(self, touched: Iterable[Uid], snapshot: Snapshot) -> None:
        """Record which of these workloads are looked at in the next cycle in any case, and what their problems are."""
        for uid in touched:
            (self._unsettled.discard if self._is_settled(uid) else self._unsettled.add)(uid)
        parts = [part for uid in self._unsettled if (part := self._parts.get(uid)) is not None]
        self._kept = {uid for _, kept in parts for uid in kept or ()}
        self._problems = {
            gang_key.identify(pod, snapshot).uid: found.problem
            for found, kept in parts
            if found.problem is not None and kept is None
            for pod in found.pods.values()
        }

    def _is_settled(self, uid: Uid) -> bool:
        """Return whether what is expected of a workload stays as it is until something changes that is followed."""
        workload, part = self._held.workloads.get(uid), self._parts.get(uid)
        if workload is None:
            return True
        if uid in self._seats.members or (workload.is_waiting and uid in self._booked.members):
            return False
        if part is None:
            return not workload.is_waiting or workload.is_over
        return part[0].problem is None and part[0].follows_from(workload, self._inputs, self._groups)

    # The pods and claims of all parts.

    def _exchange(self, templates: Mapping[str, ClaimTemplate]) -> None:
        """Bring the pods and claims up to date: of parts that are stale, or name a template that changed."""
        named = {key: templates.get(key) for key in self._naming}
        keys = [key for key, template in named.items() if template is not self._named.get(key)]
        self._stale.update(uid for key in keys for uid in self._naming[key])
        if self._stale:
            self._stale |= self._rivals
            pods, claims, rivals = Version(self._pods), Version(self._claims), set[Uid]()
            # First what may fail: after an exception the pods and claims are still those that are shown.
            for found, _ in [self._parts[uid] for uid in self._stale if uid in self._parts]:
                found.refresh(templates)
            for uid in self._stale:
                _take_out(self._shown.get(uid, NOTHING), pods, claims)
            for uid in sorted(self._stale):  # of claims of one name the last one counts
                part = self._parts.get(uid)
                if part is None:
                    self._shown.pop(uid, None)
                    continue
                self._shown[uid] = shown = _Shown.of(part)
                rivals.update(map(names.workload_of, _put_in(shown, pods, claims)))
            self._pods, self._claims, self._rivals = pods, claims, rivals
            self._stale = set()
        self._named = named

    def _found_templates(self, snapshot: Snapshot) -> Mapping[str, ClaimTemplate]:
        """Return the claim templates, with those that ClaimPolicies will provide once the pods exist."""
        if not snapshot.policies:
            return snapshot.templates
        missing = frozenset(key for key in self._naming if key not in snapshot.templates)
        if not missing:
            return snapshot.templates

        def provide() -> Mapping[str, ClaimTemplate]:
            pods = {uid: pod for part in self._parts.values() for uid, pod in _Shown.of(part).pods.items()}
            made = provided_templates.with_provided(replace(snapshot, pods=pods)).templates
            return {key: made[key] for key in missing if key in made}

        provided = self._provided.get(missing, (self._inputs,), provide)
        self._provided.keep_only((missing,))
        return {**snapshot.templates, **provided}


def _belongs_to(claim: Claim, pods_: Collection[Uid]) -> bool:
    return names.is_expected(claim.meta.uid) and any(owner.uid in pods_ for owner in claim.meta.owners)


def _expected_seats(placement: Placement) -> Iterator[tuple[Uid, Uid]]:
    """Yield the expected pods that have a slot in a placement, each with its workload."""
    return ((names.workload_of(uid), uid) for uid in placement.seats if names.is_expected(uid))


def _by_maker(placement: Placement) -> Iterator[tuple[Uid, GangUid]]:
    yield gang_key.maker(placement.gang_uid), placement.gang_uid


def _is_current_gang(found: _ExpectedPods, kept: Collection[Uid], snapshot: Snapshot, book: Book) -> bool:
    """Return whether the expected pods still belong to the gang that holds their slots, not to that of a next try."""
    present = (found.pods[uid] for uid in kept if uid in found.pods)
    return any(book.owners[pod.meta.uid] == gang_key.identify(pod, snapshot).uid for pod in present)


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


def _count(counts: Counter[K], key: K, times: int) -> None:
    """Add to a count, which keeps no zeros."""
    counts[key] += times
    if not counts[key]:
        del counts[key]


def _take_out(shown: _Shown, pods: Version[Uid, Pod], claims: Version[str, Claim]) -> None:
    for uid in shown.pods:
        pods.drop(uid)
    for key, claim in shown.claims.items():
        if claims.get(key) is claim:
            claims.drop(key)


def _put_in(shown: _Shown, pods: Version[Uid, Pod], claims: Version[str, Claim]) -> set[Uid]:
    """Add the pods and claims of a workload; return the pods of all claims of one name."""
    twice = set[Uid]()
    for uid, pod in shown.pods.items():
        pods.put(uid, pod)
    for key, claim in shown.claims.items():
        other = claims.get(key)
        if other is not None:
            twice.update(owner.uid for one in (claim, other) for owner in one.meta.owners)
        claims.put(key, claim)
    return twice
