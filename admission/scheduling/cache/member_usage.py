"""The usage of the members of queues, from the ledger, and the order of their gangs by it (`quota.queue_order`).

Only queues with `fairSharing.within` are counted. A placement names its namespace and its user, so a new leader finds
the same members in the ledger.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.api.kubernetes.nodes import Namespace
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import MemberKind, Within
from admission.api.snapshot import changed
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.incremental import are_same
from admission.quota import fair_share, queue_order
from admission.quota.fair_share import MemberHistory, MemberShares
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import BY_RANK, Members, Order, Rank
from admission.quota.tree import Tree
from admission.workloads.gangs import Group

Amounts = defaultdict[MeterName, int]

_Person = tuple[str, str]
"""A namespace, and the creator of a gang there."""


@dataclass(slots=True)
class MemberUsage:
    """The use of the members of queues. One per leader.

    Rule: `_used` is the sum over `_placements`, which `order` alone brings up to date. By hand, since it is a sum that
    a changed placement changes by its difference.
    """

    _made_from: tuple[object, ...] = ()
    """The inputs that attribute a placement to a member; if they change, all placements are counted again."""
    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _used: dict[QueueName, dict[str, Amounts]] = field(default_factory=dict)
    _held: dict[QueueName, dict[_Person, Amounts]] = field(default_factory=dict)
    """By queue whose members have a history, namespace and creator: what they use now."""
    _read: MemberHistory | None = None
    """The history as last read from the ledger, with which `_history` began."""
    _history: MemberHistory | None = None
    """What was used up to the last cycle."""

    def read(self, history: MemberHistory | None, now: datetime) -> None:
        """Bring past use up to a time, from what was read, or on by what has been used since the last cycle.

        Called before `order` counts what has changed. history: as read from the ledger; None if it is unknown.
        """
        if history is not self._read:
            self._read = self._history = history
        if self._history is not None:
            self._history = self._history.going_on(self._held, now)

    def order(
        self,
        waiting: Mapping[QueueName, tuple[Group, ...]],
        placements: Mapping[GangUid, Placement],
        namespaces: Mapping[str, Namespace],
        tree: Tree,
        needed: Callable[[Group], Charge],
    ) -> Order:
        """Return the order of waiting gangs. waiting: by queue. needed: a lower bound on a gang's charge."""
        rules = _rules(tree)
        if not rules:
            self._made_from, self._placements, self._used, self._held = (), {}, {}, {}
            return BY_RANK
        self._count(rules, placements, namespaces, tree)
        usage, places, found = QueueUsage(tree, {}), dict[str, Rank](), dict[QueueName, Members]()
        decayed = self._decayed(rules, namespaces)
        meters = {meter for quotas in tree.quotas.values() for meter in quotas}
        for queue, within in rules.items():
            groups = waiting.get(queue, ())
            if len(groups) < 2:
                continue
            shares = MemberShares(
                used=self._used.get(queue, {}),
                potential={meter: usage.potential(queue, meter) for meter in meters},
                weights=dict(within.weights),
                decayed=decayed.get(queue, {}) if within.half_life else None,
            )
            members = {group.key: _member(within, group.identity.namespace, group.user, namespaces) for group in groups}
            found[queue] = Members(members, shares)
            places |= queue_order.member_places(groups, found[queue], needed)
        return Order(places, found)

    def _count(
        self,
        rules: Mapping[QueueName, Within],
        placements: Mapping[GangUid, Placement],
        namespaces: Mapping[str, Namespace],
        tree: Tree,
    ) -> None:
        made_from = (tree, namespaces)
        if not are_same(made_from, self._made_from):
            self._made_from, self._placements, self._used, self._held = made_from, {}, {}, {}
        for uid in changed(self._placements, placements):
            for placement, sign in ((self._placements.get(uid), -1), (placements.get(uid), 1)):
                within = rules.get(placement.queue) if placement is not None else None
                if placement is None or within is None:
                    continue
                person = placement.gang.partition("/")[0], placement.user
                member = _member(within, *person, namespaces)
                sums = [self._used.setdefault(placement.queue, {}).setdefault(member, defaultdict(int))]
                if within.half_life:
                    sums.append(self._held.setdefault(placement.queue, {}).setdefault(person, defaultdict(int)))
                for holding in placement.holdings.values():
                    for meter, amount in holding.charge.items():
                        for used in sums:
                            used[meter] += sign * amount
        self._placements = placements

    def _decayed(
        self, rules: Mapping[QueueName, Within], namespaces: Mapping[str, Namespace]
    ) -> Mapping[QueueName, Mapping[str, Mapping[MeterName, float]]]:
        """Return the past use of members, by queue: of those whose namespaces and creators they are now."""
        past = (
            ((queue, _member(rules[queue], namespace, user, namespaces), meter), amount)
            for (queue, namespace, user, meter), amount in (self._history.use.items() if self._history else ())
            if queue in rules
        )
        found: dict[QueueName, dict[str, dict[MeterName, float]]] = {}
        for (queue, member, meter), amount in fair_share.sums(past).items():
            found.setdefault(queue, {}).setdefault(member, {})[meter] = amount
        return found


def _rules(tree: Tree) -> dict[QueueName, Within]:
    return {
        name: sharing.within
        for name, queue in tree.queues.items()
        if (sharing := queue.fair_sharing) is not None and sharing.within is not None and tree.active(name)
    }


def _member(within: Within, namespace: str, user: str, namespaces: Mapping[str, Namespace]) -> str:
    """Return the member that a gang belongs to; empty if unknown. All gangs of unknown members count as one member."""
    match within.by:
        case MemberKind.NAMESPACE:
            return namespace
        case MemberKind.USER:
            return user
        case MemberKind.LABEL:
            known = namespaces.get(namespace)
            return known.labels.get(within.label, "") if known is not None else ""
