"""Who has the devices, counters or capacity for which a gang waits that an empty cluster would serve."""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from admission.api.values import references
from admission.api.values.names import NodeName
from admission.api.values.references import Reference, Referent
from admission.dra.diagnosis.explain import Explanation
from admission.dra.diagnosis.rule_refusals import names_text
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.requests.device_use import Holder
from admission.dra.state.cluster_state import ClusterState

LISTED = 64
"""How many devices the details list."""


def explain_busy(
    explanation: Explanation, greedy_search: FirstFitSearch, cluster: ClusterState, device_signatures: DeviceSignatures
) -> Explanation:
    """Add the claims that have the missing devices."""
    if explanation.parsed is None:
        return _with_users(explanation, cluster)
    state = greedy_search.state
    used = {
        entry.id: cluster.taken[entry.id]
        for node in range(len(state.names))
        for entry, number in zip(state.layouts[node].listed_devices, state.layouts[node].numbers, strict=True)
        if entry.id in cluster.taken and device_signatures.known[number].answers[explanation.parsed] is Answer.YES
    }
    if not used:
        return Explanation(f"{explanation.message}; it would fit if nothing else were in use", explanation.details)
    holders = _holders(used.values())
    devices = f"{len(used)} {'device' if len(used) == 1 else 'devices'} that would do"
    return Explanation(
        f"{explanation.message}; {devices} {'is' if len(used) == 1 else 'are'} in use by {holders.phrase}",
        {
            **explanation.details,
            "inUse": sorted(map(str, used))[:LISTED],
            "holders": references.listed(holders, references.NOWHERE),
        },
        explanation.parsed,
        (holders,),
    )


def kept_for_others(nodes: Sequence[NodeName]) -> str:
    """Return which nodes kube-scheduler keeps for others, to be added to why a gang waits; empty text if none."""
    return f"; kube-scheduler keeps {names_text(nodes)} for pods that it has nominated there" if nodes else ""


def _with_users(explanation: Explanation, cluster: ClusterState) -> Explanation:
    """Add the claims whose devices leave too little of a counter or capacity, if that is what is missing."""
    message = f"{explanation.message}; it would fit if nothing else were in use"
    users = [cluster.taken[device] for device in explanation.used_up if device in cluster.taken]
    users += [share.holder for device in explanation.used_up for share in cluster.shares.get(device, ())]
    if not users:
        return Explanation(message, explanation.details)
    holders = _holders(users)
    details = {**explanation.details, "holders": references.listed(holders, references.NOWHERE)}
    return Explanation(f"{explanation.message}; the rest is in use by {holders.phrase}", details, None, (holders,))


def _holders(holders: Iterable[Holder]) -> Reference:
    """Return a reference to the claims that hold devices; of very many, to the gangs that hold most.

    holders: one for each device, which may be tens of thousands.
    """
    # By names: hashing tens of thousands of holders takes longer than all the rest.
    claims = Counter((holder.claim, holder.gang) for holder in holders)
    if len(claims) <= references.LISTED:
        return references.refer((_referent(*item) for item in sorted(claims.items())), detail="holders")
    gangs = Counter[tuple[str, str]]()
    for (claim, gang), count in claims.items():
        gangs["" if gang else claim, gang] += count
    most = heapq.nsmallest(references.LISTED, gangs.items(), key=lambda item: (-item[1], item[0]))
    referents = (_referent(*item) for item in most)
    return references.refer(referents, detail="holders", count=len(gangs) if len(gangs) > len(most) else 0)


def _referent(named: tuple[str, str], devices: int) -> Referent:
    claim, gang = named
    return Holder(claim=claim, gang=gang).referent(devices)
