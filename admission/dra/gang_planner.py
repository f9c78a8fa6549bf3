"""The gang planner: a node and devices for every pod of a gang, all together or not at all.

Under `Pin` the rule is that of kube-scheduler (`Choice.FIRST_FIT`): pods are placed one after the other, and each gets
the first fit of devices on its node beside all that was taken before. Order and nodes are free; the devices are not.
Under `Allocate` devices are free as well (`Choice.FREE`), since Muster allocates them itself; where devices take
resources of their nodes, they are still the first that fit.

The searches: `planner.first_fit` for the first fit; for free devices `freechoice.bin_packing` if no claim is shared and
no device is seen by several nodes, else `freechoice.search`; over all of these `topology` for domains. Each is sound
and complete within the budget of steps; an answer at its end is STEPS_ENDED and proves nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.nodes import Resources
from admission.api.muster.gangs import PlannedClaim, PlannedPod
from admission.api.muster.ledger_entries import Holding
from admission.api.values.names import Uid
from admission.dra import compatibility
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.allocator.first_fits import FirstFits
from admission.dra.allocator.results import Budget, StepsEndedError
from admission.dra.diagnosis import busy, explain
from admission.dra.diagnosis.explain import Explanation
from admission.dra.equivalence import device_signature
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.freechoice.bin_packing import BinPacker
from admission.dra.freechoice.free_fits import FreeFits
from admission.dra.freechoice.search import FreeChoiceSearch
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import ChargeError, Meters
from admission.dra.planner import candidate_nodes, pod_groups
from admission.dra.planner.candidate_nodes import CapacityBound, CountedGang
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.planner.node_groups import SearchState
from admission.dra.planner.pod_groups import ClaimToAllocate, Gang, Outcome
from admission.dra.requests import device_plugins, requests
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.gang_request import Affordable, Choice, Plan, PodDemand, Shortfall, Topology, anything
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.requests.requests import Fatal, RequestRefusal, Unpriced
from admission.dra.state import cluster_state, nominated_pods, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.topology import exclusive, search
from admission.dra.topology.subgroups import Searches
from admission.errors import AmountError

_NOTHING: Mapping[str, int] = MappingProxyType({})

NO_PLAN = "there is no plan"

MAY_HAVE_PLANS = (Kind.STEPS_ENDED, Kind.OVER_QUOTA)
"""The answers that prove nothing against a plan: it was not found in time, or is too dear."""


def plan(  # noqa: PLR0913 - everything that an answer depends on, by name
    pods: Sequence[PodDemand],
    cluster: ClusterState,
    *,
    meters: Meters = device_meters.NONE,
    selectors: Selectors,
    steps: int,
    affordable: Affordable = anything,
    choice: Choice = Choice.FIRST_FIT,
    topology: Topology | None = None,
    mute: bool = False,
    beside: Mapping[str, int] = _NOTHING,
    kinds_of_use: KindsOfUse = (),
) -> Plan | NoPlan:
    """Place all pods of a gang, or return why there is no plan.

    steps: see `Budget`; if the free choice of devices ends without an answer, first fit gets as many again. Quota takes
    part in the search: if the first choice is not affordable another one may be. Claims that are allocated or planned
    already are not charged again. topology: which pods have to be in one domain; pods that will follow others into an
    exclusive one have a place there as well, and are not in the plan. mute: do not explain what is missing
    if there is no plan; the kind of answer is the same. beside: what pods request beside each device, in the mean, by
    which nodes are ordered; empty to try those with the fewest free devices first. kinds_of_use: for the same order.
    """
    parts = (cluster, meters, selectors, steps, affordable, choice, topology, mute)
    return _first_plan(pods, _Question(*parts, beside=beside, kinds_of_use=kinds_of_use))[0]


@dataclass(frozen=True, slots=True)
class _Question:
    """All that an answer depends on beside the pods."""

    cluster: ClusterState
    meters: Meters
    selectors: Selectors
    steps: int
    affordable: Affordable
    choice: Choice
    topology: Topology | None
    mute: bool = False
    loose: bool = False
    """Whether what devices take of their nodes does not matter."""
    beside: Mapping[str, int] = field(default_factory=dict)
    kinds_of_use: KindsOfUse = ()

    def counted(self, gang: Gang, known: DeviceSignatures) -> CountedGang | None:
        """Return a gang with its candidate nodes, if they are known to it."""
        # What pods get on nodes is kept for long, so it has no cluster state.
        fits = partial(FreeFits if self.choice is Choice.FREE else FirstFits, profile=self.cluster.profile)
        parts = (gang, self.cluster, known, fits)
        return candidate_nodes.count(*parts, choice=self.choice, beside=self.beside, kinds_of_use=self.kinds_of_use)

    def device_signatures(self, gang: Gang) -> DeviceSignatures:
        """Return the device signatures for a gang; for a free choice without the defects of 1.36."""
        profile = self.cluster.profile
        if self.choice is Choice.FREE:
            profile = profile.with_known_bugs(compatibility.AS_OF_1_37)
        need = device_signature.Need(
            requests.parsed_requests(gang.claims), requests.attributes(gang.claims), self.meters, profile
        )
        return device_signature.build(need, self.selectors)


def _first_plan(pods: Sequence[PodDemand], question: _Question) -> tuple[Plan | NoPlan, Sequence[PodDemand]]:
    """Return the first plan, and the pods with what device plugins serve in it.

    Without a plan it is the answer that leaves it open whether there is one, or else that with the most pods placed.
    """
    cluster = nominated_pods.without_reserved(pods, question.cluster)
    refused: list[tuple[NoPlan, Sequence[PodDemand]]] = []
    for way in _ways(pods, cluster):
        whole = exclusive.with_followers(way, question.topology, cluster)
        answer = _plan(whole, replace(question, cluster=exclusive.with_volume_claims(whole, cluster)))
        if isinstance(answer, Plan):
            return answer, way
        refused.append((answer, way))
    return max(refused, key=lambda one: (one[0].kind in MAY_HAVE_PLANS, one[0].placed))


def _ways(pods: Sequence[PodDemand], cluster: ClusterState) -> Iterable[Sequence[PodDemand]]:
    """Return the ways in which device plugins and devices may serve extended resources of the pods; at least one."""
    if cluster.profile.features.extended_resources:
        return device_plugins.ways(pods, cluster.nodes.values(), cluster.classes)
    return ([device_plugins.with_plugins(demand, demand.extended, cluster.classes) for demand in pods],)


def _plan(pods: Sequence[PodDemand], question: _Question) -> Plan | NoPlan:
    gang = pod_groups.compile_gang(pods, question.cluster)
    if not isinstance(gang, Gang):
        return NoPlan(kind=Kind.FATAL, message=f"pod {gang.pod}: {gang.refusal}", details={"pod": gang.pod})
    known = question.device_signatures(gang)
    if question.topology is None:
        return _counted(gang, question, known)

    relaxed = replace(question, choice=Choice.FREE, affordable=anything, mute=True, loose=True)
    relaxed_signatures = relaxed.device_signatures(gang) if question.topology.subgroups else known

    def full(gang: Gang, steps: int) -> Plan | NoPlan:
        return _Planning(gang, question, known, steps).answer()

    def relaxed_search(gang: Gang, steps: int) -> Plan | NoPlan:
        # What holds for the whole gang need not hold for a part of it, as affinity to pods of another part.
        gang = replace(gang, rules=gang.rules.relaxed if gang.rules is not None else None)
        return _Planning(gang, relaxed, relaxed_signatures, steps).answer()

    searches = Searches(full=full, relaxed=relaxed_search, device_signatures=(known, relaxed_signatures))
    return search.placed(question.topology, gang, question.cluster, known, steps=question.steps, searches=searches)


def _counted(gang: Gang, question: _Question, known: DeviceSignatures) -> Plan | NoPlan:
    """Search for a plan, unless counting shows that there is none and no explanation is needed."""
    counted = question.counted(gang, known)
    if counted is None:
        return _Planning(gang, question, known, question.steps).answer()
    if question.mute and counted.is_short:
        return NoPlan(kind=Kind.INFEASIBLE, message=NO_PLAN, capacity_bound=counted.capacity_bound)
    (best, candidates), spent = counted.limited(), 0
    if best is not None:
        first = _Planning(best, question, known, question.steps // candidate_nodes.BEST_SHARE)
        if (found := first.plan()) is not None:
            return found
        spent = first.budget.spent
    answer = _Planning(candidates if question.mute else gang, question, known, question.steps, candidates).answer()
    if isinstance(answer, Plan):
        return answer
    return replace(answer, capacity_bound=counted.capacity_bound, steps=answer.steps + spent)


def capacity_bound(
    pods: Sequence[PodDemand],
    cluster: ClusterState,
    *,
    meters: Meters = device_meters.NONE,
    selectors: Selectors,
    choice: Choice,
    beside: Mapping[str, int] = _NOTHING,
    kinds_of_use: KindsOfUse = (),
) -> CapacityBound | None:
    """Return the proof by counting that there is no plan, to be repeated in other states; None if there can be none.

    For pods without a topology. beside, kinds_of_use: as in `plan`, with which it shares what it has counted.
    """
    gang = pod_groups.compile_gang(pods, cluster)
    if not isinstance(gang, Gang) or any(demand.extended for demand in pods):
        return None
    parts = (cluster, meters, selectors, 0, anything, choice, None)
    question = _Question(*parts, beside=beside, kinds_of_use=kinds_of_use)
    counted = question.counted(gang, question.device_signatures(gang))
    return None if counted is None else counted.capacity_bound


def diagnose(  # noqa: PLR0913 - the same
    answer: NoPlan,
    pods: Sequence[PodDemand],
    cluster: ClusterState,
    *,
    meters: Meters = device_meters.NONE,
    selectors: Selectors,
    steps: int,
    choice: Choice = Choice.FIRST_FIT,
    topology: Topology | None = None,
) -> NoPlan:
    """Tell a gang that waits for busy devices from one that would not fit an empty cluster.

    Only an infeasible answer is examined; every other one is returned unchanged.
    """
    if answer.kind is not Kind.INFEASIBLE:
        return answer
    cluster = nominated_pods.without_reserved(pods, cluster)
    own = {
        device.device for pod in pods for claim in pod.claims if claim.allocation for device in claim.allocation.devices
    }
    wanted = search.needed(topology, answer)
    question = _Question(cluster, meters, selectors, steps, anything, choice, wanted)
    empty, pods = _first_plan(pods, replace(question, cluster=what_if.empty(cluster, keep=own)))
    whole = exclusive.with_followers(pods, topology, cluster)
    cluster = exclusive.with_volume_claims(whole, cluster)
    gang = pod_groups.compile_gang(whole, cluster)
    if not isinstance(gang, Gang):
        return answer
    if isinstance(empty, NoPlan):
        if empty.kind is Kind.STEPS_ENDED:
            return replace(
                empty, message=f"{answer.message}; whether an empty cluster would do was not found in {steps} steps"
            )
        # Where nothing matches, what is in use has nothing to do with it.
        matters = empty.details.get("matching") != 0
        return replace(empty, message=f"{empty.message}{', even if nothing else were in use' if matters else ''}")
    question = replace(question, cluster=cluster)
    if wanted is None:
        return _Planning(gang, question, question.device_signatures(gang), steps).busy(answer)
    places, gang = search.where(empty, wanted, gang, cluster)
    found = _Planning(gang, question, question.device_signatures(gang), steps).busy(answer)
    return search.pending(found, answer, wanted, places)


class _Planning:
    """The planning of one compiled gang in one cluster state.

    candidates: the gang limited to nodes that are enough to find a plan; without one all nodes are explained.
    """

    def __init__(
        self, gang: Gang, question: _Question, known: DeviceSignatures, steps: int, candidates: Gang | None = None
    ) -> None:
        self.gang = gang
        self.candidates = candidates or gang
        self.question = question
        self.cluster = question.cluster
        self.device_signatures = known
        self.steps = steps
        self.choice = question.choice
        self.affordable = question.affordable
        self.budget = Budget(steps)

    def answer(self) -> Plan | NoPlan:
        try:
            outcome = self._searched(self.affordable)
            if outcome.done:
                return self._plan(outcome)
            if outcome.shortfall is not None:
                return self._over_quota(outcome.shortfall)
            return self._infeasible(outcome)
        except StepsEndedError:
            message = f"neither a plan nor a proof that there is none was found in {self.steps} steps"
            details = {"steps": self.steps}
            return NoPlan(kind=Kind.STEPS_ENDED, message=message, details=details, steps=self.budget.spent)
        except AmountError as error:
            message = f"the gang cannot be charged: {error}"
            return NoPlan(kind=Kind.UNPRICED, message=message, steps=self.budget.spent)

    def plan(self) -> Plan | None:
        """Return a plan, if one search finds it; None decides nothing."""
        try:
            outcome = self._first(self.affordable)
            return self._plan(outcome) if outcome.done else None
        except (StepsEndedError, AmountError):
            return None

    def busy(self, answer: NoPlan) -> NoPlan:
        try:
            greedy_search, explanation = self._explained()
        except StepsEndedError:
            message = f"it would fit if nothing else were in use; what is missing was not found in {self.steps} steps"
            return NoPlan(kind=Kind.BUSY, message=message, steps=answer.steps)
        found = busy.explain_busy(explanation, greedy_search, self.cluster, self.device_signatures)
        kept = nominated_pods.kept_from([one for kind in self.gang.kinds for one in kind.members], self.cluster)
        return NoPlan(
            kind=Kind.BUSY,
            message=f"{found.message}{busy.kept_for_others(kept)}",
            details=found.details,
            references=found.references,
            steps=answer.steps,
            placed=len(greedy_search.outcome.placed),
        )

    def _searched(self, affordable: Affordable) -> Outcome:
        """Search for nodes and devices. Raises StepsEndedError."""
        try:
            return self._first(affordable, self._is_disproved)
        except StepsEndedError:
            if self.choice is Choice.FIRST_FIT:
                raise
            # First fit may find a plan sooner: a gang must not lose one because its devices may be chosen.
            self.budget.renew(self.steps)
            outcome = self._greedy_search(affordable).run()
            if outcome.done:
                return outcome
            raise

    def _first(self, affordable: Affordable, disproved: Callable[[], bool] | None = None) -> Outcome:
        """Search once, as devices are picked. Raises StepsEndedError."""
        if self.choice is Choice.FREE:
            return self._free(affordable)
        return self._greedy_search(affordable, disproved=disproved, is_ordered=True).run()

    def _is_disproved(self) -> bool:
        """Return whether a free choice of devices is proved to have no plan, within a fourth of the steps.

        Then first fit has none: the devices that kube-scheduler gives could be chosen as well. Bin packing fills node
        after node and so finds the proof much sooner.
        """
        known = replace(self.question, choice=Choice.FREE).device_signatures(self.candidates)
        state = SearchState(self.candidates, self.cluster, known)
        if not state.is_apart:
            return False
        parts = (self.candidates, state, self.cluster, known, Budget(self.steps // 4), anything)
        with suppress(StepsEndedError):
            return not BinPacker(*parts).run().done
        return False

    def _free(self, affordable: Affordable) -> Outcome:
        known = (self.candidates, self.cluster, self.device_signatures, self.question.beside)
        # What it has is packed node by node, so more groups would only make proofs longer.
        state = SearchState(*known, kinds_of_use=self.question.kinds_of_use, by_served=False)
        if state.takes and not self.question.loose:
            return self._greedy_search(affordable).run()
        if state.is_apart:
            parts = (self.candidates, state, self.cluster, self.device_signatures, self.budget, affordable)
            return BinPacker(*parts, self.question.beside).run()
        return FreeChoiceSearch(self.candidates, self.cluster, self.device_signatures, self.budget, affordable).run()

    def _greedy_search(
        self,
        affordable: Affordable,
        *,
        greedy: bool = False,
        disproved: Callable[[], bool] | None = None,
        is_ordered: bool = False,
    ) -> FirstFitSearch:
        gang = self.gang if greedy else self.candidates
        parts = (gang, self.cluster, self.device_signatures, self.budget, affordable)
        beside, kinds_of_use = (self.question.beside, self.question.kinds_of_use) if is_ordered else (_NOTHING, ())
        return FirstFitSearch(*parts, greedy=greedy, disproved=disproved, beside=beside, kinds_of_use=kinds_of_use)

    def _over_quota(self, shortfall: Shortfall) -> NoPlan:
        """Answer that no plan is affordable; or that there is none at all, if a search without quota proves it."""
        with suppress(StepsEndedError):
            if not (free := self._searched(anything)).done:
                return self._infeasible(free)
        return NoPlan(
            kind=Kind.OVER_QUOTA, message=shortfall.message, details=shortfall.details, steps=self.budget.spent
        )

    def _infeasible(self, outcome: Outcome) -> NoPlan:
        """Answer why there is no plan: first what Muster cannot evaluate, then what is missing."""
        spent = self.budget.spent
        refusals = sorted(outcome.refusals, key=lambda refusal: isinstance(refusal, Fatal))
        if refusals:
            return self._refused(refusals[0], outcome)
        if self.question.mute:
            return NoPlan(kind=Kind.INFEASIBLE, message=NO_PLAN, steps=spent)
        try:
            greedy_search, found = self._explained()
        except StepsEndedError:
            message = f"there is no plan; where the gang gets stuck was not found in {self.steps} steps"
            return NoPlan(kind=Kind.INFEASIBLE, message=message, steps=spent)
        missing = explain.explain_incomplete(self.gang, self.cluster, self.device_signatures, greedy_search)
        if missing is not None:
            return NoPlan(kind=Kind.POOL_INCOMPLETE, message=missing.message, details=missing.details, steps=spent)
        placed, details = len(greedy_search.outcome.placed), found.details
        return NoPlan(kind=Kind.INFEASIBLE, message=found.message, details=details, steps=spent, placed=placed)

    def _refused(self, refusal: RequestRefusal, outcome: Outcome) -> NoPlan:
        number, place = outcome.refusals[refusal]
        kind = self.gang.kinds[number]
        pod = kind.members[0].pod.meta.name
        if isinstance(refusal, Unpriced):
            details = {"pod": pod, "meter": refusal.meter}
            return NoPlan(kind=Kind.UNPRICED, message=f"pod {pod}: {refusal}", details=details, steps=self.budget.spent)
        claim = kind.wanted[0][place].claim.meta.name if place is not None else ""
        where = f"request {refusal.request} of claim {claim}: " if claim and refusal.request else ""
        where += self._class_with(refusal)
        named = {"pod": pod, "claim": claim, "request": refusal.request, "device": refusal.device}
        return NoPlan(
            kind=Kind.FATAL,
            message=f"pod {pod}: {where}{refusal}",
            details={name: value for name, value in named.items() if value},
            steps=self.budget.spent,
        )

    def _class_with(self, refusal: Fatal) -> str:
        """Return the DeviceClass of which a selector fails, to stand before the error; empty if none has it."""
        asked = sorted({parsed.device_class for parsed in self.device_signatures.parsed_requests})
        known = (self.cluster.classes[name] for name in asked if name in self.cluster.classes)
        texts = ((one.meta.name, text) for one in known for text in one.selectors)
        name = next((name for name, text in texts if refusal.error.startswith(f"selector {text!r} ")), "")
        return f"DeviceClass {name}: " if name else ""

    def _explained(self) -> tuple[FirstFitSearch, Explanation]:
        """Search greedily to where the gang gets stuck, and explain that. Raises StepsEndedError."""
        self.budget = Budget(self.steps)
        greedy_search = self._greedy_search(anything, greedy=True)
        greedy_search.run()
        return greedy_search, explain.explain_dead_end(self.gang, self.cluster, self.device_signatures, greedy_search)

    def _plan(self, outcome: Outcome) -> Plan:
        pods: list[PlannedPod] = []
        by_devices: dict[Uid, Resources] = {}
        held: list[Holding] = []
        taken: dict[Uid, tuple[DeviceUse, ...]] = {}
        for placed in outcome.placed:
            demand = self.gang.kinds[placed.kind].members[placed.member]
            if demand.follows:
                continue
            claims: list[PlannedClaim] = []
            for wanted, given in placed.claims:
                meta, key = wanted.claim.meta, cluster_state.key_of(wanted.claim)
                devices, uses = tuple(one.request_device for one in given), [one.use for one in given]
                claims.append(PlannedClaim(uid=meta.uid, claim=meta.key, devices=devices))
                held.append(self._holding(wanted, given, devices, uses))
                taken[key] = tuple(use for use in uses if use is not None)
            by_node = self._served_by_node(demand)
            if by_node is not None:
                held.append(by_node)
            meta, node = demand.pod.meta, outcome.names[placed.node]
            pods.append(PlannedPod(uid=meta.uid, pod=meta.key, node=node, claims=tuple(claims)))
            if placed.by_devices:
                by_devices[meta.uid] = placed.by_devices
        return Plan(
            pods=tuple(pods),
            charge=device_meters.added(holding.charge for holding in held),
            holdings=tuple(held),
            uses=taken,
            steps=self.budget.spent,
            by_devices=by_devices,
        )

    def _served_by_node(self, demand: PodDemand) -> Holding | None:
        """Return what a pod will hold of its node's resources."""
        pod = demand.pod
        resources = holdings.of_node(pod.requests, demand.by_devices)
        return holdings.of_pod(self.device_signatures.need.meters, pod.meta.uid, pod.meta.key, resources)

    def _holding(
        self,
        wanted: ClaimToAllocate,
        given: Sequence[AllocatedRequest],
        devices: tuple[RequestDevice, ...],
        uses: Sequence[DeviceUse | None],
    ) -> Holding:
        """Return what a claim will hold."""
        meters, claim = self.device_signatures.need.meters, wanted.claim
        charged = [
            device_meters.PricedDevice(
                device, one.listed.device, one.option.admin, use.share if use is not None else None
            )
            for device, one, use in zip(devices, given, uses, strict=True)
        ]
        charge = device_meters.charge(meters, claim.spec, charged)
        if isinstance(charge, ChargeError):
            raise AmountError(charge.message)
        return Holding(
            claim_uid=cluster_state.key_of(claim),
            claim=claim.meta.key,
            devices=devices,
            charge=charge,
            classes=holdings.classes(meters, claim.spec, ((one.request, one.admin_access) for one in charged)),
        )
