"""Nominations: the grants that preempting gangs get once their victims are gone.

For all other gangs a nomination's devices count as taken, in addition to what the victims still have. Quota is asked
twice: beside what is used now, with the victims that are still there, and beside what is used in the end, with the
nominations in their stead; what starts has to fit both times. The nominated gang is decided first in every cycle, and
may start with any devices that it then gets, but borrows nothing in the stead of its victims while they are there.
A nomination ends when its gang starts, when the victims are gone and it cannot start, or when another gang takes it
over that could preempt the nominated gang if that ran already.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import references
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import Hold
from admission.api.values.references import Referent
from admission.dra.metering import device_meters
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Shortfall, anything
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Belongings, Interval
from admission.incremental import Memo
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.preemption_rules import Candidate
from admission.scheduling import cycle
from admission.scheduling.backfill import reservations, single_gang
from admission.scheduling.backfill.expected_end import Users
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import VerdictCache
from admission.scheduling.checks import budget, completeness, preference, runtime
from admission.scheduling.checks.chain import Decision, Grant, Inputs, Rules
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.preemption.targets import PreemptionCandidate
from admission.workloads.gangs import Group

LONGEST = timedelta(minutes=10)
"""How long after the grace period of the victims' pods a nomination is kept while the victims are still there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nomination:
    """The grant that a gang gets once its victims are gone.

    victims: by UID, when each was granted. named: the victims, by name. pods: of the victims.
    """

    group: Group
    grant: Grant
    victims: Mapping[GangUid, datetime]
    named: tuple[Referent, ...]
    pods: frozenset[Uid]
    since: datetime

    @property
    def uid(self) -> GangUid:
        return self.group.uid

    def is_for(self, group: Group) -> bool:
        """Return whether the gang still waits with all pods of the plan."""
        waiting = {pod.meta.uid for pod in group.waiting}
        return group.queue == self.group.queue and waiting.issuperset(pod.uid for pod in self.grant.plan.pods)

    def is_pending(self, placements: Mapping[GangUid, Placement], snapshot: Snapshot, now: datetime) -> bool:
        """Return whether some victim still holds something and is expected to give it back in time."""
        pods = [pod for uid in self.pods if (pod := snapshot.pods.get(uid)) is not None and not pod.finished]
        open_ = (placements.get(uid) for uid in self.victims)
        has = any(one is not None and one.reserved_at == self.victims[one.gang_uid] for one in open_)
        ends = max((pod.meta.deleted for pod in pods if pod.meta.deleted is not None), default=self.since)
        return (has or any(pod.node for pod in pods)) and now <= max(ends, self.since) + LONGEST

    def candidate(self) -> PreemptionCandidate:
        """Return the nominated gang as a preemption candidate, as if it ran already."""
        plan, pods = self.grant.plan, {pod.meta.uid: pod for pod in self.group.waiting}
        return PreemptionCandidate(
            key=self.group.key,
            candidate=Candidate(
                uid=self.uid,
                queue=self.group.queue,
                priority=self.group.priority,
                reserved_at=self.since,
                queued_since=self.group.queued_since,
                charge=plan.charge,
            ),
            belongings=Belongings(
                claims=frozenset(claim.claim for place in plan.pods for claim in place.claims),
                room=tuple((place.node, plan.taken_by(pods[place.uid])) for place in plan.pods),
                placed=frozenset(place.uid for place in plan.pods),
            ),
        )

    def expected_end(self, queue: Queue | None) -> ExpectedEnd:
        """Return the nominated gang's expected end, as if it ran since its nomination."""
        plan = self.grant.plan
        requests = reservations.requests(self.group, plan)
        devices = tuple(use.device for uses in plan.uses.values() for use in uses)
        return ExpectedEnd(
            interval=Interval(
                gang=self.group.key,
                requests=requests,
                devices=devices,
                pods=frozenset(place.uid for place in plan.pods),
            ),
            queue=self.group.queue,
            charge=plan.charge,
            end=runtime.end(self.since, runtime.declared_runtime(self.group, queue)),
            is_used=False,
        )

    def explained(self, hold: Hold) -> Hold:
        """Return the hold with the victims that the gang waits for."""
        victims = references.refer(self.named, detail="evicted")
        are = "is" if len(self.named) == 1 else "are"
        return replace(
            hold,
            message=f"{hold.message}; {victims.phrase} {are} evicted for it, and it starts when their devices are free",
            details={**hold.details, "evicted": references.listed(victims, references.NOWHERE)},
            references=(*hold.references, victims),
        )


class Leaving(NamedTuple):
    """A victim that is still charged. charge: what is free when it is gone."""

    placement: Placement
    charge: Charge


class _Explained(NamedTuple):
    """A hold of a nominated gang, and its form that names the victims."""

    hold: Hold
    explained: Hold


@dataclass(slots=True)
class Nominations:
    """The nominations of a leader. One per leader.

    Rule: a nomination stands from `nominate` until `drop`, or until `keep_waiting` finds that its gang no longer waits.
    `explain` names the victims in the hold of a gang while its nomination stands, and in no other.
    """

    _by_gang: dict[GangUid, Nomination] = field(default_factory=dict)
    _has_restored: bool = False
    _explained: dict[GangUid, _Explained] = field(default_factory=dict)
    """By gang, its last explained hold, so that an equal hold gets the same object."""
    _states: Memo[None, dict[tuple[Nomination, ...], ClusterState]] = field(default_factory=Memo)
    """For the last cluster state, by nominations, the state with these taken. Both are immutable."""
    _expected_ends: Memo[None, Mapping[str, ExpectedEnd]] = field(default_factory=Memo)

    @property
    def by_gang(self) -> Mapping[GangUid, Nomination]:
        return self._by_gang

    @property
    def has_restored(self) -> bool:
        """Return whether the leader has examined its predecessor's evictions."""
        return self._has_restored

    def mark_restored(self) -> None:
        self._has_restored = True

    def nominate(self, nomination: Nomination) -> None:
        self._by_gang[nomination.uid] = nomination

    def drop(self, gang: GangUid) -> Nomination | None:
        """Drop and return the nomination of a gang, if it has one."""
        return self._by_gang.pop(gang, None)

    def keep_waiting(self, groups: Iterable[Group]) -> None:
        """Drop the nominations of gangs that no longer wait with the planned pods. groups: all gangs."""
        if self._by_gang:
            known = ((self._by_gang.get(group.uid), group) for group in groups)
            waiting = {one.uid for one, group in known if one is not None and one.is_for(group)}
            self._by_gang = {uid: one for uid, one in self._by_gang.items() if uid in waiting}

    def leaving(self, placements: Mapping[GangUid, Placement], users: Users) -> Mapping[GangUid, Leaving]:
        """Return the victims of all nominations that are still charged. users: of each claim.

        A claim that pods of others use as well is not free when the victim is gone.
        """
        found = dict[GangUid, Leaving]()
        for uid, at in chain.from_iterable(one.victims.items() for one in self._by_gang.values()):
            placement = placements.get(uid)
            if placement is not None and placement.reserved_at == at:
                charges = (
                    holding.charge
                    for key, holding in placement.holdings.items()
                    if users.get(key, frozenset()) <= placement.seats.keys()
                )
                found[uid] = Leaving(placement, device_meters.added(charges))
        return found

    def explain(
        self, found: dict[GangUid, Decision], dropped: Iterable[GangUid], before: Mapping[GangUid, Decision]
    ) -> tuple[Decision, ...]:
        """Return the decisions of a cycle; only the holds of nominated gangs name the gangs evicted for them.

        found: the new decisions. before: the last ones. dropped: gangs that have lost their nomination in this cycle.
        """
        for uid in dropped:
            known, last = self._explained.pop(uid, None), before.get(uid)
            if known is not None and last is not None and uid not in found:
                found[uid] = replace(last, outcome=known.hold)
        for uid, nomination in self._by_gang.items():
            decision, known = found.get(uid) or before.get(uid), self._explained.get(uid)
            if decision is None or not isinstance(decision.outcome, Hold):
                continue
            if known is not None and decision.outcome is known.explained:
                continue
            if known is None or known.hold != decision.outcome:
                known = self._explained[uid] = _Explained(decision.outcome, nomination.explained(decision.outcome))
            found[uid] = replace(decision, outcome=known.explained)
        self._explained = {uid: known for uid, known in self._explained.items() if uid in self._by_gang}
        return tuple(found.values())

    def over(self, cluster: ClusterState, nominations: Iterable[Nomination]) -> ClusterState:
        """Return the cluster state in which the devices and resources of these nominations are taken as well."""
        key = tuple(nominations)
        if not key:
            return cluster
        states: dict[tuple[Nomination, ...], ClusterState] = self._states.get(None, (cluster,), dict)
        if key not in states:
            states[key] = _with_all(cluster, key)
        return states[key]

    def with_nominated(
        self,
        expected_ends: Mapping[str, ExpectedEnd],
        queues: Mapping[QueueName, Queue],
        leaving: Collection[Leaving],
    ) -> Mapping[str, ExpectedEnd]:
        """Return the expected ends of running gangs, by name, and of nominated ones as if they ran.

        leaving: the victims that are still charged.
        """
        if not self._by_gang:
            return expected_ends
        pairs = [(one, queues.get(one.group.queue)) for one in self._by_gang.values()]

        def merged() -> Mapping[str, ExpectedEnd]:
            found = {**{one.group.key: one.expected_end(queue) for one, queue in pairs}, **expected_ends}
            gone = [one.gang for one in placements if one.gang in found]
            return found | {gang: replace(found[gang], is_used_in_the_end=False) for gang in gone}

        placements = [one.placement for one in leaving]
        return self._expected_ends.get(None, (expected_ends, *chain.from_iterable(pairs), *placements), merged)


def _with_all(cluster: ClusterState, nominations: Iterable[Nomination]) -> ClusterState:
    for one in nominations:
        cluster = with_nomination(cluster, one.group, one.grant)
    return cluster


def with_nomination(cluster: ClusterState, group: Group, grant: Grant) -> ClusterState:
    """Return the state in which the devices and resources of a grant are taken, while its claims stay pending."""
    plan, pods = grant.plan, {pod.meta.uid: pod for pod in group.waiting}
    room = [(place.node, plan.taken_by(pods[place.uid])) for place in plan.pods]
    claims = ((claim.claim, plan.uses.get(claim.uid or Uid(claim.claim), ())) for p in plan.pods for claim in p.claims)
    held = ((Holder(claim=claim, gang=group.key), taken) for claim, taken in claims)
    placed = ((place.node, place.uid, pods[place.uid]) for place in plan.pods)
    return what_if.with_usage(cluster, room, held, placed)


def granted(cluster: ClusterState, group: Group, grant: Grant) -> ClusterState:
    """Return the cluster state after a grant to a gang."""
    pods = {pod.meta.uid: pod for pod in group.waiting}
    return cluster_state.granted(cluster, grant.plan, pods, group.key, grant.claims)


def charged(usage: Usage, charges: Iterable[tuple[QueueName, Charge]], sign: int = 1) -> Usage:
    """Return the usage with these charges added; with the sign -1, without them."""
    found = {queue: dict(amounts) for queue, amounts in usage.items()}
    for queue, charge in charges:
        amounts = found.setdefault(queue, {})
        for meter, amount in charge.items():
            amounts[meter] = amounts.get(meter, 0) + sign * amount
    return found


def decide_all(
    groups: tuple[Group, ...],
    rules: Rules,
    cluster: ClusterState,
    usage: Usage,
    nominated: Nominations,
    *,
    backfill: Backfill | None,
    leaving: Mapping[GangUid, Leaving],
) -> CycleDecisions:
    """Decide about the pending gangs as `cycle` does, nominated gangs first. leaving: the victims still charged."""
    nominations = [*nominated.by_gang.values()]
    if not nominations or rules.hold_beyond_limit is not None:
        in_the_end = _in_the_end(usage, nominations, leaving) if nominations else None
        return cycle.decide_all(
            groups, rules, nominated.over(cluster, nominations), usage, backfill, in_the_end=in_the_end
        )
    known = {group.uid: group for group in groups}
    left = [*nominations]
    redeemed: list[Decision] = []
    for nomination in nominations:
        others = [one for one in left if one is not nomination]
        group = known[nomination.uid]
        decision = _redeemed(
            nomination,
            group,
            rules,
            nominated.over(cluster, others),
            QueueUsage(rules.tree, usage, _in_the_end(usage, others, leaving)),
            backfill=backfill,
            is_early=not leaving.keys().isdisjoint(nomination.victims),
        )
        if decision is None or not isinstance(decision.outcome, Grant):
            continue
        left, redeemed = others, [*redeemed, decision]
        cluster = granted(cluster, group, decision.outcome)
        usage = charged(usage, [(group.queue, decision.outcome.plan.charge)])
        if rules.workspace.balances is not None:
            rules.workspace.balances.charge(group.queue, decision.outcome.plan.charge, budget.runtime_of(group))
    started = {decision.group.uid for decision in redeemed}
    rest = tuple(group for group in groups if group.uid not in started) if started else groups
    in_the_end = _in_the_end(usage, left, leaving)
    round_ = cycle.decide_all(rest, rules, nominated.over(cluster, left), usage, backfill, in_the_end=in_the_end)
    return replace(round_, updated=(*redeemed, *round_.updated))


def _in_the_end(usage: Usage, nominations: Iterable[Nomination], leaving: Mapping[GangUid, Leaving]) -> Usage:
    """Return what is used once nominated gangs have started and victims are gone."""
    after = charged(usage, [(one.group.queue, one.grant.plan.charge) for one in nominations])
    return charged(after, [(one.placement.queue, one.charge) for one in leaving.values()], -1)


def _redeemed(
    nomination: Nomination,
    group: Group,
    rules: Rules,
    cluster: ClusterState,
    queue_usage: QueueUsage,
    *,
    backfill: Backfill | None,
    is_early: bool,
) -> Decision | None:
    """Return the grant of a nominated gang, with its own nomination left out.

    Its queue borrows no more for it than for the plan for which others were evicted: else these might take that back,
    and both would evict each other in turn. is_early: whether victims of it are still charged. Then no queue on its
    path borrows in their stead, or it would get before its turn what an owner may start with. It starts late, by the
    grace period of its victims. So it must spare the reservations that bound it when it was nominated, except those
    that have fallen anyway: they are made again later in this cycle.
    """
    queue = completeness.entered(group, rules.snapshot)
    if not isinstance(queue, Queue):
        return None
    fresh = replace(rules, workspace=replace(rules.workspace, plans=PlanCache(), verdicts=VerdictCache()), mute=True)
    promised = nomination.grant.plan.charge

    def allows(charge: Charge) -> Shortfall | None:
        more = {meter: amount for meter, amount in charge.items() if amount > promised.get(meter, 0)}
        if queue_usage.borrows(queue.name, queue.name, more):
            return preference.WouldBorrow(queue.name)
        early = queue_usage.borrows_early(queue.name, charge) if is_early else None
        return None if early is None else preference.WouldBorrow(early)

    inputs = Inputs(
        rules=fresh,
        group=group,
        queue=queue,
        cluster=cluster,
        queue_usage=queue_usage,
        allows=allows if nomination.victims else anything,
    )
    found = single_gang.granted(inputs, {group.key}, backfill, nomination.since, spares_all=False)
    return None if found is None else Decision(group=group, outcome=found.outcome, position=1, needed=found.needed)
