"""Nominations: the grants that preempting gangs get once their victims are gone.

For all other gangs a nomination's devices and quota count as taken, in addition to what the victims still have. The
nominated gang is decided first in every cycle, and may start with any devices that it then gets. A nomination ends when
its gang starts, when the victims are gone and it cannot start, or when another gang takes it over that could preempt
the nominated gang if that ran already.
"""

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import Hold
from admission.dra.planner import requeue_hint
from admission.dra.requests.device_use import Holder
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Belongings, Interval
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.preemption_rules import Candidate
from admission.scheduling import cycle
from admission.scheduling.backfill import reservations, single_gang
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import VerdictCache
from admission.scheduling.checks import budget, completeness, runtime
from admission.scheduling.checks.chain import Decision, Grant, Inputs, Rules
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.preemption.equivalence import PreemptionQuestions
from admission.scheduling.preemption.targets import PreemptionCandidate
from admission.workloads.gangs import Group

LONGEST = timedelta(minutes=10)
"""How long after the grace period of the victims' pods a nomination is kept while the victims are still there."""

MOST_NAMED = 4
"""The most victims that the message names; the details have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nomination:
    """The grant that a gang gets once its victims are gone.

    victims: by UID, when each was granted. names: of the victims, `namespace/name`. pods: of the victims.
    """

    group: Group
    grant: Grant
    victims: Mapping[GangUid, datetime]
    names: tuple[str, ...]
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
                charge=plan.charge,
            ),
            belongings=Belongings(
                claims=frozenset(claim.claim for place in plan.pods for claim in place.claims),
                room=tuple((place.node, pods[place.uid].requests) for place in plan.pods),
            ),
        )

    def expected_end(self, queue: Queue | None) -> ExpectedEnd:
        """Return the nominated gang's expected end, as if it ran since its nomination."""
        plan = self.grant.plan
        requests = reservations.requests(self.group, plan)
        devices = tuple(use.device for uses in plan.uses.values() for use in uses)
        return ExpectedEnd(
            interval=Interval(gang=self.group.key, requests=requests, devices=devices),
            queue=self.group.queue,
            charge=plan.charge,
            end=runtime.end(self.since, runtime.declared_runtime(self.group, queue)),
        )

    def explained(self, hold: Hold) -> Hold:
        """Return the hold with the victims that the gang waits for."""
        more = len(self.names) - MOST_NAMED
        listed = ", ".join(self.names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        who = f"gang {listed} is" if len(self.names) == 1 else f"gangs {listed} are"
        message = f"{hold.message}; {who} evicted for it, and it starts when their devices are free"
        return replace(hold, message=message, details={**hold.details, "evicted": [*self.names]})


@dataclass(slots=True)
class NominatedState:
    """The cluster states with nominations taken, cached by cluster state and nominations."""

    _known: dict[tuple[object, ...], ClusterState] | None = None

    def over(self, cluster: ClusterState, nominations: Sequence[Nomination]) -> ClusterState:
        """Return the cluster state in which the nominated devices and resources are taken as well."""
        if not nominations:
            return cluster
        key = (cluster, *nominations)
        known = self._known or {}
        if key not in known:
            known = {known_key: state for known_key, state in known.items() if known_key[0] is cluster} | {
                key: _with_all(cluster, nominations)
            }
            self._known = known
        return known[key]


@dataclass(slots=True)
class Expected:
    """The expected ends of running and nominated gangs, cached while both are the same."""

    _made_from: tuple[object, ...] = ()
    _expected_ends: Mapping[str, ExpectedEnd] = field(default_factory=dict)

    def with_nominated(
        self,
        expected_ends: Mapping[str, ExpectedEnd],
        nominations: Iterable[Nomination],
        queues: Mapping[QueueName, Queue],
    ) -> Mapping[str, ExpectedEnd]:
        """Return the expected ends of running gangs, by name, and of nominated ones as if they ran."""
        made_from = (expected_ends, *nominations)
        if len(made_from) == 1:
            return expected_ends
        if len(made_from) != len(self._made_from) or not all(map(operator.is_, made_from, self._made_from)):
            nominated = {
                nomination.group.key: nomination.expected_end(queues.get(nomination.group.queue))
                for nomination in nominations
            }
            self._made_from, self._expected_ends = made_from, {**nominated, **expected_ends}
        return self._expected_ends


@dataclass(slots=True)
class Nominations:
    """The nominations of a leader, and the questions for which it found no victims. One per leader.

    begun: whether the leader has examined its predecessor's evictions. explained: by gang, a hold and its explained
    form, to reuse the same object. groups, cluster, made_from: the inputs of the last search for victims. questions: of
    gangs. failed: questions without victims on these inputs. left: whether some questions were not searched on these
    inputs. turns: by question, the turn of its last search.
    """

    nominations: dict[GangUid, Nomination] = field(default_factory=dict)
    with_nominations: NominatedState = field(default_factory=NominatedState)
    expected: Expected = field(default_factory=Expected)
    recalled: bool = False
    explained: dict[GangUid, tuple[Hold, Hold]] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    cluster: ClusterState | None = None
    made_from: tuple[object, ...] = ()
    questions: PreemptionQuestions = field(default_factory=PreemptionQuestions)
    failed: set[Hashable] = field(default_factory=set)
    left: bool = False
    turn: int = 0
    turns: dict[Hashable, int] = field(default_factory=dict)

    def begin(self, groups: tuple[Group, ...], cluster: ClusterState, *made_from: object) -> bool:
        """Begin a search for victims. Return whether there is anything that was not searched before.

        Failed questions are searched again if the inputs, nodes or the use of devices have changed.
        """
        moved = self.cluster is not cluster and (
            self.cluster is None or requeue_hint.changed(self.cluster, cluster) != frozenset()
        )
        same = len(made_from) == len(self.made_from) and all(map(operator.is_, made_from, self.made_from))
        if moved or not same:
            self.failed.clear()
        is_new = self.left or moved or not same or groups is not self.groups
        self.groups, self.cluster, self.made_from, self.left = groups, cluster, made_from, False
        self.turn += 1
        return is_new

    def next(self, questions: Sequence[Hashable], most: int) -> frozenset[Hashable]:
        """Return the questions to search in this cycle: at most so many, the least recently searched first.

        questions: of all gangs that preempt now; others are dropped.
        """
        self.failed.intersection_update(questions)
        fresh = [question for question in questions if question not in self.failed]
        self.left = len(fresh) > most
        found = frozenset(sorted(fresh, key=lambda question: self.turns.get(question, 0))[:most])
        still = frozenset(questions)
        self.turns = {question: turn for question, turn in self.turns.items() if question in still} | dict.fromkeys(
            found, self.turn
        )
        return found


def _with_all(cluster: ClusterState, nominations: Iterable[Nomination]) -> ClusterState:
    for one in nominations:
        cluster = with_nomination(cluster, one.group, one.grant)
    return cluster


def with_nomination(cluster: ClusterState, group: Group, grant: Grant) -> ClusterState:
    """Return the state in which the devices and resources of a grant are taken, while its claims stay pending."""
    plan, pods = grant.plan, {pod.meta.uid: pod for pod in group.waiting}
    room = [(place.node, pods[place.uid].requests) for place in plan.pods]
    claims = ((claim.claim, plan.uses.get(claim.uid or Uid(claim.claim), ())) for p in plan.pods for claim in p.claims)
    return what_if.with_usage(cluster, room, ((Holder(claim=claim, gang=group.key), taken) for claim, taken in claims))


def granted(cluster: ClusterState, group: Group, grant: Grant) -> ClusterState:
    """Return the cluster state after a grant to a gang."""
    pods = {pod.meta.uid: pod for pod in group.waiting}
    return cluster_state.granted(cluster, grant.plan, pods, group.key, grant.claims)


def charged(usage: Usage, charges: Iterable[tuple[QueueName, Charge]]) -> Usage:
    """Return the usage with these charges added."""
    found = {queue: dict(amounts) for queue, amounts in usage.items()}
    for queue, charge in charges:
        amounts = found.setdefault(queue, {})
        for meter, amount in charge.items():
            amounts[meter] = amounts.get(meter, 0) + amount
    return found


def decide_all(
    groups: tuple[Group, ...],
    rules: Rules,
    cluster: ClusterState,
    usage: Usage,
    memory: Nominations,
    *,
    backfill: Backfill | None,
) -> CycleDecisions:
    """Decide about the pending gangs as `cycle` does, nominated gangs first."""
    with_nominations, nominations = memory.with_nominations, [*memory.nominations.values()]
    if not nominations or rules.hold_beyond_limit is not None:
        return cycle.decide_all(
            groups, rules, with_nominations.over(cluster, nominations), _with(usage, nominations), backfill
        )
    known = {group.uid: group for group in groups}
    left = [*nominations]
    redeemed: list[Decision] = []
    for nomination in nominations:
        others = [one for one in left if one is not nomination]
        group = known[nomination.uid]
        decision = _redeemed(
            nomination, group, rules, with_nominations.over(cluster, others), _with(usage, others), backfill=backfill
        )
        if decision is None or not isinstance(decision.outcome, Grant):
            continue
        left, redeemed = others, [*redeemed, decision]
        cluster = granted(cluster, group, decision.outcome)
        usage = charged(usage, [(group.queue, decision.outcome.plan.charge)])
        if rules.balances is not None:
            rules.balances.charge(group.queue, decision.outcome.plan.charge, budget.runtime_of(group))
    started = {decision.group.uid for decision in redeemed}
    rest = tuple(group for group in groups if group.uid not in started) if started else groups
    round_ = cycle.decide_all(rest, rules, with_nominations.over(cluster, left), _with(usage, left), backfill)
    return replace(round_, updated=(*redeemed, *round_.updated))


def _with(usage: Usage, nominations: Sequence[Nomination]) -> Usage:
    return charged(usage, [(one.group.queue, one.grant.plan.charge) for one in nominations]) if nominations else usage


def _redeemed(
    nomination: Nomination,
    group: Group,
    rules: Rules,
    cluster: ClusterState,
    usage: Usage,
    *,
    backfill: Backfill | None,
) -> Decision | None:
    """Return the grant of a nominated gang, with its own nomination left out.

    It starts late, by the grace period of its victims. So it must spare the reservations that bound it when it was
    nominated, except those that have fallen anyway: they are made again later in this cycle.
    """
    queue = completeness.entered(group, rules.snapshot)
    if not isinstance(queue, Queue):
        return None
    fresh = replace(rules, plans=PlanCache(), verdicts=VerdictCache(), mute=True)
    inputs = Inputs(rules=fresh, group=group, queue=queue, cluster=cluster, queue_usage=QueueUsage(rules.tree, usage))
    found = single_gang.granted(inputs, {group.key}, backfill, nomination.since, spares_all=False)
    return None if found is None else Decision(group=group, outcome=found.outcome, position=1, needed=found.needed)
