"""Refreshes reservations at the end of a cycle, with the quota that queues keep for pending gangs.

`checks.lender_quota` says for which gangs quota is kept. A gang that gets a reserved start does not need it any longer:
others borrow until then. For a gang that gets none it is kept on, and no other reservation may use it. The exception:
where both gangs would borrow and the reserved one ranks higher, the quota is kept only from gangs ordered after the
pending one, in each cycle; otherwise each of the two would make the other's start impossible.
"""

from collections.abc import Mapping

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, QueueName
from admission.dra.state.cluster_state import ClusterState
from admission.quota.headroom import QueueUsage
from admission.scheduling.backfill import precedence
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.checks.chain import Rules
from admission.workloads.gangs import Group

KeptQuota = Mapping[QueueName, tuple[Group, Charge]]
"""By queue, the gang for which it keeps quota, and the charge for which it does."""


def refresh(
    backfill: Backfill, rules: Rules, cluster: ClusterState, queue_usage: QueueUsage, keepers: KeptQuota
) -> frozenset[QueueName]:
    """Make or prove the reservations of heads, at the end of a cycle. Afterwards nothing is kept in the usage.

    Return the queues that keep quota from the beginning of the next cycle on, if their gang has no reserved start then.
    """
    queue_usage.release_all()
    is_new = backfill.note_kept_quota({name: (group.uid, charge) for name, (group, charge) in keepers.items()})
    proved = {id(one) for one in backfill.made() if one.is_proved}
    backfill.refresh(rules, cluster, queue_usage)
    # What was proved before was proved beside what is kept.
    if keepers and (is_new or not proved.issuperset(map(id, backfill.made()))):
        kept: set[GangUid] = set()
        # Each step but the last finds one more gang at least that has lost its start, or the one that came before it.
        while more := [one for one in _unreserved(backfill, rules, queue_usage, keepers) if one[0].uid not in kept]:
            for group, charge in more:
                kept.add(group.uid)
                queue_usage.keep(group.queue, charge)
            backfill.require_proofs()
            backfill.refresh(rules, cluster, queue_usage, kept)
        queue_usage.release_all()
    behind = _behind_loans(backfill, rules, queue_usage, keepers)
    return frozenset(name for name, (group, _) in keepers.items() if group.uid not in behind)


def _unreserved(
    backfill: Backfill, rules: Rules, queue_usage: QueueUsage, keepers: KeptQuota
) -> list[tuple[Group, Charge]]:
    """Return the gangs without a reserved start for which quota is kept also from those with one."""
    exempt = _behind_loans(backfill, rules, queue_usage, keepers) | {one.group.uid for one in backfill.made()}
    return [one for one in keepers.values() if one[0].uid not in exempt]


def _behind_loans(backfill: Backfill, rules: Rules, queue_usage: QueueUsage, keepers: KeptQuota) -> set[GangUid]:
    made = backfill.made()
    return {
        group.uid
        for group, charge in keepers.values()
        if precedence.is_behind_a_loan(made, group, charge, queue_usage, rules.order)
    }
