"""The protection of a driver's devices from kube-scheduler: the condition of placement `Allocate`.

Two programs that choose among the same devices may choose the same one. Muster chooses only where kube-scheduler
cannot: behind a *fence*, a taint on all devices of a driver that no claim may tolerate, or under *coverage*, where
every pod that could get devices has Muster's gate. `judge` runs in every cycle on the observed state; its checks are in
the order in which an operator has to fix what they find.

A fence also binds Muster: while its rule exists, kube-scheduler gives the driver's devices to no pod, not even to pods
that Muster has pinned. So the rule is wanted only where it can take effect, and is removed where it cannot.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes import device_taint_rules
from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import references
from admission.api.values.names import Uid
from admission.api.values.references import Kind, Reference, References, Referent
from admission.scheduling.placement import exposed_claims, pending_allocations

SETTLING = timedelta(seconds=5)
"""How long an object must have existed before it counts: kube-scheduler and API servers learn of it by watches."""

PATIENCE = timedelta(seconds=60)
"""How long a fence that cannot be maintained is kept, and how long a new one waits for allocations in progress: of
pinned gangs, and of pods outside Muster for which kube-scheduler may have chosen devices before it saw the fence."""

LISTED = 3
"""The most queues that a message names; the rest is counted."""


class Means(StrEnum):
    """The means that keep kube-scheduler off a driver's devices."""

    FENCE = "fence"
    COVERAGE = "coverage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The protection of one driver's devices. by: what protects them; None if nothing does.

    why: the reason in words, with the fix. closed: whether a fence exists, so that kube-scheduler gives the devices to
    no pod, whether or not that protects them. soon: whether they will be protected in a moment. references: of `why`.
    """

    driver: str
    why: str
    by: Means | None = None
    closed: bool = False
    soon: bool = False
    references: References = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Protections:
    """The protection of every driver's devices. named: drivers with a fence or in its setting. rest: all others."""

    named: Mapping[str, Protection] = field(default_factory=dict)
    rest: Protection

    def of_driver(self, driver: str) -> Protection:
        """Return the protection of a driver's devices."""
        found = self.named.get(driver)
        return replace(self.rest, driver=driver) if found is None else found

    @property
    def any(self) -> bool:
        """Whether the devices of some driver are protected, now or in a moment."""
        return self.soon or any(one.by is not None for one in (self.rest, *self.named.values()))

    @property
    def fenced(self) -> frozenset[str]:
        """Return the drivers whose devices a fence protects."""
        return frozenset(driver for driver, one in self.named.items() if one.by is Means.FENCE)

    @property
    def closed(self) -> frozenset[str]:
        """Return the drivers with a fence, whose devices kube-scheduler gives to no pod."""
        return frozenset(driver for driver, one in self.named.items() if one.closed)

    @property
    def soon(self) -> bool:
        """Whether the devices of some driver are not protected, but will be in a moment."""
        return any(one.soon for one in (self.rest, *self.named.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """The webhook's registration as observed. since: since when every pod creation is reviewed by Muster or fails.

    exempt: namespaces whose pods are never reviewed. kept_out: since when a policy refuses claims in them.
    """

    since: datetime | None = None
    exempt: tuple[str, ...] = ()
    kept_out: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Barriers:
    """The state of fences and coverage, as the port Fences reports it; times are of the cycle's clock.

    fence: the drivers that the setting names. served: whether the API server has DeviceTaintRules to make fences of.
    rules: driver → since when its rule exists as it must. policy: since when claims that tolerate the fence are
    refused. webhooks: None if the settings do not ask for coverage. trouble: why this cannot be observed or fixed.
    troubled: since when.
    """

    fence: tuple[str, ...] = ()
    served: bool = True
    rules: Mapping[str, datetime] = field(default_factory=dict)
    policy: datetime | None = None
    webhooks: Webhooks | None = None
    trouble: str = ""
    troubled: datetime | None = None


class Breach(NamedTuple):
    """A claim, `namespace/name`, that got a fenced device from another client than Muster."""

    claim: str
    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceInputs:
    """The inputs of `judge`: the barriers, the cluster, the ledger's open placements, and breaches by driver.

    opened: pods whose gate Muster has opened, also if the snapshot does not show it yet. mismatch: why
    kube-scheduler may decide otherwise than Muster does, if the cluster's release is not known.
    """

    barriers: Barriers
    snapshot: Snapshot
    placements: Collection[Placement]
    now: datetime
    breaches: Mapping[str, Breach] = field(default_factory=dict)
    opened: Collection[Uid] = ()
    mismatch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The protection of every driver, and the drivers for which the rule of a fence is wanted now."""

    protections: Protections
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Missing:
    """Why there is no protection. soon: whether there will be in a moment. rule: whether the fence's rule is wanted.

    references: of `why`.
    """

    why: str
    soon: bool = False
    rule: bool = False
    references: References = ()


NOTHING = Protections(
    rest=Protection(
        driver="",
        why="nothing keeps kube-scheduler off its devices (see docs/placement.md for the setting `fence`)",
    )
)
"""The protections if the settings ask for neither a fence nor coverage."""


def judge(inputs: FenceInputs) -> Judgement:
    """Return the protection of every driver's devices: by what, or why not."""
    barriers = inputs.barriers
    fenced_now = {
        driver
        for driver in map(device_taint_rules.fenced_driver, inputs.snapshot.taint_rules.values())
        if driver is not None
    }
    rest = NOTHING.rest if barriers.webhooks is None else _covered(barriers.webhooks, inputs)
    if not barriers.fence and not fenced_now:
        return Judgement(protections=Protections(rest=rest))
    missing = {driver: _missing_of_fence(driver, inputs) for driver in barriers.fence}
    named = {
        driver: _fenced(driver, missing_one, closed=driver in fenced_now) for driver, missing_one in missing.items()
    }
    for driver in fenced_now - named.keys():
        why = "a fence that the settings do not name any more is being taken away"
        named[driver] = Protection(driver=driver, why=why, closed=True, soon=True)
    for driver, one in named.items():
        if one.by is None and rest.by is not None and not one.closed:
            named[driver] = replace(rest, driver=driver)
    wanted = frozenset(driver for driver, missing_one in missing.items() if missing_one is None or missing_one.rule)
    return Judgement(protections=Protections(named=named, rest=rest), wanted=wanted)


def later(protections: Protections, why: str) -> Protections:
    """Return the protections with all that hold put off: not yet, but in a moment."""

    def put_off(one: Protection) -> Protection:
        return one if one.by is None else replace(one, by=None, soon=True, why=why, references=())

    named = {driver: put_off(one) for driver, one in protections.named.items()}
    return Protections(named=named, rest=put_off(protections.rest))


def without_fences(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot for Muster's planner, without the rules of fences, which do not bind Muster."""
    rules = {key: rule for key, rule in snapshot.taint_rules.items() if device_taint_rules.fenced_driver(rule) is None}
    return snapshot if len(rules) == len(snapshot.taint_rules) else replace(snapshot, taint_rules=rules)


# A fence.


def _fenced(driver: str, missing_one: _Missing | None, *, closed: bool) -> Protection:
    if missing_one is None:
        return Protection(driver=driver, why="its devices are fenced", by=Means.FENCE, closed=True)
    return Protection(
        driver=driver,
        why=missing_one.why,
        closed=closed,
        soon=missing_one.soon,
        references=missing_one.references,
    )


def _missing_of_fence(driver: str, inputs: FenceInputs) -> _Missing | None:
    return next((missing_one for check in _OF_FENCES if (missing_one := check(driver, inputs)) is not None), None)


def _release_is_known(_: object, inputs: FenceInputs) -> _Missing | None:
    """Check that an allocation which Muster makes is one that this kube-scheduler would accept as its own."""
    if not inputs.mismatch:
        return None
    return _Missing(
        f"{inputs.mismatch}: upgrade Muster, or set controller.profile to vouch that the cluster's kube-scheduler is"
        " alike"
    )


def _rules_are_served(_: str, inputs: FenceInputs) -> _Missing | None:
    if inputs.barriers.served:
        return None
    return _Missing(
        "the API server does not serve DeviceTaintRules in resource.k8s.io/v1 or v1beta2: upgrade to Kubernetes 1.37,"
        " or switch on v1beta2 and the feature gate DRADeviceTaintRules in 1.36, or take the driver from the setting"
        " `fence`"
    )


def _kube_scheduler_heeds_it(driver: str, inputs: FenceInputs) -> _Missing | None:
    breach = inputs.breaches.get(driver)
    if breach is None:
        return None
    claim = references.refer([Referent(kind=Kind.CLAIM, key=breach.claim)])
    return _Missing(
        f"{claim.phrase} has device {breach.device}, which somebody gave it in spite of the fence: see that the feature"
        " gate DRADeviceTaintRules is on in kube-scheduler and that nobody else allocates, then restart Muster's"
        " controller",
        references=(claim,),
    )


def _fence_can_be_kept(driver: str, inputs: FenceInputs) -> _Missing | None:
    """Keep a fence for a while that cannot be maintained: a restarting API server refuses requests for a moment."""
    barriers = inputs.barriers
    if barriers.troubled is None:
        return None
    passing = inputs.now - barriers.troubled < PATIENCE
    return _Missing(
        f"the fence cannot be kept: {barriers.trouble}", soon=passing, rule=passing and driver in barriers.rules
    )


def _nobody_tolerates_it(_: str, inputs: FenceInputs) -> _Missing | None:
    found = [*exposed_claims.tolerating(inputs.snapshot)]
    if not found:
        return None
    tolerating, tolerate = _some(found), "tolerates" if len(found) == 1 else "tolerate"
    return _Missing(
        f"{tolerating.phrase} {tolerate} every taint or {device_taint_rules.FENCE.key}, and so the fence:"
        " delete and make anew with tolerations that name the key of another taint",
        references=(tolerating,),
    )


def _tolerating_claims_are_refused(driver: str, inputs: FenceInputs) -> _Missing | None:
    since, stands = inputs.barriers.policy, driver in inputs.barriers.rules
    if since is None:
        return _Missing(
            "the policy that refuses claims which tolerate the fence is not there yet", soon=True, rule=stands
        )
    if inputs.now - since < SETTLING:
        return _Missing("the policy that refuses claims which tolerate the fence is new", soon=True, rule=stands)
    return None


def _no_gang_is_in_flight(driver: str, inputs: FenceInputs) -> _Missing | None:
    """Delay a new fence while kube-scheduler is allocating the driver's devices for a pinned gang."""
    if driver in inputs.barriers.rules:
        return None
    late = inputs.now - PATIENCE
    found = [_gang(one) for one in pending_allocations.in_flight(*_pending(inputs), driver) if one.reserved_at > late]
    if not found:
        return None
    gangs, have = _some(found), "has its" if len(found) == 1 else "have their"
    return _Missing(f"the fence waits until {gangs.phrase} {have} devices", soon=True, references=(gangs,))


def _rule_stands(driver: str, inputs: FenceInputs) -> _Missing | None:
    if driver in inputs.barriers.rules:
        return None
    return _Missing(f"DeviceTaintRule {device_taint_rules.fence_name(driver)} is not there yet", soon=True, rule=True)


def _rule_is_heeded(driver: str, inputs: FenceInputs) -> _Missing | None:
    age = inputs.now - inputs.barriers.rules[driver]
    if age < SETTLING:
        return _Missing("the fence is new, and kube-scheduler may not have seen it yet", soon=True, rule=True)
    if age >= PATIENCE:
        return None
    known_since = inputs.barriers.rules[driver] + SETTLING
    found = [_pod(pod) for pod in pending_allocations.outsiders(*_pending(inputs)) if pod.meta.created <= known_since]
    found += map(_pod, pending_allocations.towards_nodes(*_pending(inputs), until=known_since))
    if not found:
        return None
    pods = _some(found)
    why = f"the fence is new, and kube-scheduler may be placing {pods.phrase}"
    return _Missing(why, soon=True, rule=True, references=(pods,))


_OF_FENCES: tuple[Callable[[str, FenceInputs], _Missing | None], ...] = (
    _release_is_known,
    _rules_are_served,
    _kube_scheduler_heeds_it,
    _fence_can_be_kept,
    _nobody_tolerates_it,
    _tolerating_claims_are_refused,
    _no_gang_is_in_flight,
    _rule_stands,
    _rule_is_heeded,
)


# Coverage.


def _covered(webhooks: Webhooks, inputs: FenceInputs) -> Protection:
    missing_one = next(
        (missing_one for check in _OF_COVERAGE if (missing_one := check(webhooks, inputs)) is not None), None
    )
    if missing_one is None:
        return Protection(driver="", why="no pod can ask for devices but through a queue", by=Means.COVERAGE)
    return Protection(
        driver="",
        why=f"not every pod is covered: {missing_one.why}",
        soon=missing_one.soon,
        references=missing_one.references,
    )


def _coverage_can_be_kept(_: Webhooks, inputs: FenceInputs) -> _Missing | None:
    barriers = inputs.barriers
    if barriers.troubled is None:
        return None
    return _Missing(barriers.trouble, soon=inputs.now - barriers.troubled < PATIENCE)


def _one_queue_takes_all(_: Webhooks, inputs: FenceInputs) -> _Missing | None:
    """Check that every pod without a queue enters one; with two default queues it enters none."""
    every = [queue for queue in inputs.snapshot.queues.values() if queue.default and queue.namespaces is not None]
    defaults = [queue for queue in every if queue.meta.deleted is None] or every
    if len(defaults) == 1 and _takes_all(defaults[0]):
        return None
    if not any(map(_takes_all, defaults)):
        return _Missing("no queue is marked `default: true` for an empty namespaceSelector, so pods may enter no queue")
    others = sorted(queue.name for queue in defaults if not _takes_all(queue)) or sorted(q.name for q in defaults)[1:]
    named = ", ".join(others[:LISTED]) + (f" and {len(others) - LISTED} more" if len(others) > LISTED else "")
    return _Missing(f"besides the queue for all namespaces {named} is marked default, and pods then enter none")


def _pods_are_seen(webhooks: Webhooks, inputs: FenceInputs) -> _Missing | None:
    if webhooks.since is None:
        return _Missing("the webhook is not registered for the pods of all namespaces with failurePolicy Fail")
    if inputs.now - webhooks.since < SETTLING:
        return _Missing("the webhook's registration is new", soon=True)
    return None


def _claims_are_kept_out(webhooks: Webhooks, inputs: FenceInputs) -> _Missing | None:
    exempt = ", ".join(webhooks.exempt)
    if webhooks.kept_out is None:
        return _Missing(f"the policy that keeps claims out of the namespaces {exempt} is not there yet", soon=True)
    if inputs.now - webhooks.kept_out < SETTLING:
        return _Missing(f"the policy that keeps claims out of the namespaces {exempt} is new", soon=True)
    found = [
        Referent(kind=Kind.CLAIM, key=claim.meta.key, uid=claim.meta.uid)
        for claim in inputs.snapshot.claims.values()
        if claim.meta.namespace in webhooks.exempt
        and exposed_claims.takes_devices(claim.spec)
        and exposed_claims.may_be_allocated(claim)
    ]
    if not found:
        return None
    claims = _some(found)
    why = f"the webhook does not see the pods of the namespace of {claims.phrase}: delete {_it(found)}"
    return _Missing(why, references=(claims,))


def _no_pod_is_outside(_: Webhooks, inputs: FenceInputs) -> _Missing | None:
    unread = (key for kind, key in inputs.snapshot.malformed if kind == Kind.POD)
    found = [_pod(pod) for pod in pending_allocations.outsiders(*_pending(inputs))]
    found += [Referent(kind=Kind.POD, key=key, note=exposed_claims.UNREADABLE) for key in unread]
    if not found:
        return None
    pods, it = _some(found), _it(found)
    why = f"{pods.phrase} came before the webhook, and kube-scheduler may give {it} devices: delete {it}"
    return _Missing(why, references=(pods,))


def _no_pinned_gang_is_in_flight(_: Webhooks, inputs: FenceInputs) -> _Missing | None:
    found = [*map(_gang, pending_allocations.in_flight(*_pending(inputs)))]
    if not found:
        return None
    gangs = _some(found)
    why = f"kube-scheduler is choosing the devices of {gangs.phrase}, since Muster has pinned {_it(found)}"
    return _Missing(why, soon=True, references=(gangs,))


_OF_COVERAGE: tuple[Callable[[Webhooks, FenceInputs], _Missing | None], ...] = (
    _release_is_known,
    _coverage_can_be_kept,
    _one_queue_takes_all,
    _pods_are_seen,
    _claims_are_kept_out,
    _no_pod_is_outside,
    _no_pinned_gang_is_in_flight,
)


def _takes_all(queue: Queue) -> bool:
    return queue.namespaces is not None and not queue.namespaces.requirements


def _pending(inputs: FenceInputs) -> tuple[Snapshot, Collection[Placement], Collection[Uid]]:
    return inputs.snapshot, inputs.placements, inputs.opened


# References.


def _some(found: Iterable[Referent]) -> Reference:
    return references.refer(sorted(found, key=lambda one: (one.kind, one.key)))


def _it(found: Sized) -> str:
    return "it" if len(found) == 1 else "them"


def _gang(placement: Placement) -> Referent:
    return Referent(kind=Kind.GANG, key=placement.gang, queue=placement.queue)


def _pod(pod: Pod) -> Referent:
    return Referent(kind=Kind.POD, key=pod.meta.key, uid=pod.meta.uid)
