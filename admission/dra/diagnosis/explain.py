"""The explanation of why a gang has no plan, in words and numbers.

The message names the pod, its claim and request, the first condition that fails, and what the best node has. It is
derived from the state of a greedy search where it got stuck.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from admission.api.kubernetes.devices import DeviceId
from admission.api.values import selectors
from admission.api.values.names import NodeName
from admission.api.values.reasons import Detail
from admission.api.values.references import References
from admission.dra.allocator.results import DeadEnd, Failure
from admission.dra.diagnosis import (
    no_devices,
    node_resources,
    other_nodes,
    placed_before,
    requested,
    rule_refusals,
    used_up,
)
from admission.dra.diagnosis.node_dead_end import NodeDeadEnd
from admission.dra.diagnosis.requested import DeviceShortage, Need
from admission.dra.diagnosis.used_up import Shortage
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures
from admission.dra.inventory import pools
from admission.dra.planner import node_filters
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.planner.pod_groups import ClaimToAllocate, Gang, PodKind
from admission.dra.requests.requests import Option, ParsedRequest
from admission.dra.state.cluster_state import ClusterState
from admission.filters.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Explanation:
    """A message, its numbers and references, and, if devices were too few, the number of the parsed request.

    used_up: the devices whose use leaves too little of a counter or capacity.
    """

    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
    parsed: int | None = None
    references: References = ()
    used_up: tuple[DeviceId, ...] = ()


@dataclass(frozen=True, slots=True)
class _DeadEndContext:
    """Where the greedy search got stuck."""

    gang: Gang
    cluster: ClusterState
    device_signatures: DeviceSignatures
    greedy: FirstFitSearch
    kind: PodKind
    member: int
    wanted: tuple[ClaimToAllocate, ...]
    """The claims of the pod that got stuck that are still to be allocated."""

    @property
    def pod(self) -> str:
        return self.kind.members[self.member].pod.meta.name


def explain_dead_end(
    gang: Gang, cluster: ClusterState, device_signatures: DeviceSignatures, greedy: FirstFitSearch
) -> Explanation:
    """Explain where a greedy search got stuck. Some kind must have found no node."""
    kind, member = _stuck(gang, greedy)
    allocated = greedy.state.allocated
    wanted = tuple(claim for claim in kind.wanted[member] if claim.shared is None or allocated[claim.shared] is None)
    context = _DeadEndContext(gang, cluster, device_signatures, greedy, kind, member, wanted)
    if not kind.nodes:
        return _no_node_passes(context)
    found = _explained(context)
    refusals = rule_refusals.left_out(gang, kind, member, cluster)
    if not refusals:
        return found
    said = _texts(found.details.get("rules"))
    details = {**found.details, "rules": [*dict.fromkeys((*said, *rule_refusals.titles(refusals.values())))]}
    return replace(found, message=f"{found.message}; {rule_refusals.text(refusals, said=said)}", details=details)


def _stuck(gang: Gang, greedy: FirstFitSearch) -> tuple[PodKind, int]:
    """Return the kind, and the number in it, of the pod that got stuck."""
    number = greedy.outcome.dead_end or 0
    return gang.kinds[number], sum(placed.kind == number for placed in greedy.outcome.placed)


def _texts(value: Detail | None) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _explained(context: _DeadEndContext) -> Explanation:
    """Explain why none of the nodes where the pod may go takes it now."""
    nodes = _open_nodes(context)
    if not nodes:
        return _shared_claims_elsewhere(context)
    state, wants = context.greedy.state, context.kind.wants
    with_resources = [node for node in nodes if node_filters.lacking(wants, state.left(node)) is None]
    if not with_resources:
        return _insufficient_resources(context, nodes)
    refusals = {at: refusal for at in with_resources if (refusal := state.refuses(context.kind, at)) is not None}
    left = [at for at in with_resources if at not in refusals]
    if refusals and (not left or any(context.greedy.dead_end_at(context.kind, at) is None for at in refusals)):
        own = {
            state.names[at]: rule_refusals.of_member(refusal, context.gang, context.kind, context.member)
            for at, refusal in refusals.items()
        }
        return _kept_off_by_rules(context, own, left)
    lacking = {state.names[at]: found for at in left if (found := context.greedy.lacking_at(context.kind, at))}
    if lacking:
        short = node_resources.shortage_with_devices(lacking)
        return Explanation(f"{_subject(context)} {short.text}{_after(context)}", {"pod": context.pod, **short.details})
    return _insufficient_devices(context, left)


def _kept_off_by_rules(
    context: _DeadEndContext, refusals: Mapping[NodeName, Refusal], others: Sequence[int]
) -> Explanation:
    """Explain that a rule between pods keeps the pod off the nodes that would have devices for it."""
    rest = f"; {len(others)} more have too few devices for it" if others else ""
    subject, elsewhere = _subject(context).removesuffix(","), "" if context.wanted else _with_resources(context)
    return Explanation(
        f"no node takes {subject}: {rule_refusals.text(refusals)}{rest}{_after(context)}{elsewhere}",
        {"pod": context.pod, "rules": rule_refusals.titles(refusals.values()), "nodes": len(refusals)},
    )


def _open_nodes(context: _DeadEndContext) -> list[int]:
    """Return the nodes that the pod's filters and shared claims allow."""
    names, usable = enumerate(context.greedy.state.names), _usable(context)
    return [at for at, name in names if name in context.kind.nodes and all(at in nodes for nodes in usable)]


def _usable(context: _DeadEndContext) -> list[frozenset[int]]:
    """Return the nodes where each of the pod's shared claims can be used that are allocated."""
    found = (context.greedy.state.allocated[w.shared] for w in context.kind.wanted[0] if w.shared is not None)
    return [nodes for nodes in found if nodes is not None]


def _subject(context: _DeadEndContext) -> str:
    """Return the pod, and first of all the shared claims that leave only some of its nodes, whatever others have."""
    tied = _tied(context)
    return f"pod {context.pod}, which {tied}," if tied else f"pod {context.pod}"


def _tied(context: _DeadEndContext) -> str:
    """Return to which of the nodes where the pod might go its shared claims tie it; empty if to all of them."""
    nodes, state = context.kind.nodes, context.greedy.state
    found: list[str] = []
    left = {at for at, name in enumerate(state.names) if name in nodes}
    for wanted in context.kind.wanted[0]:
        usable = state.allocated[wanted.shared] if wanted.shared is not None else None
        if usable is not None and not left.issubset(usable):
            found.append(wanted.claim.meta.name)
            left &= set(usable)
    if not found:
        return ""
    names = [state.names[at] for at in sorted(left)]
    counted = f"{len(names)} of the {len(nodes)} where it might go"
    nodes_text = rule_refusals.names_text(names)
    return f"its shared {_claims(found)} {'ties' if len(found) == 1 else 'tie'} to {nodes_text} ({counted})"


def _no_node_passes(context: _DeadEndContext) -> Explanation:
    """Explain that no node passes the filters."""
    demand = context.kind.members[context.member]
    if not context.cluster.nodes:
        return Explanation(f"pod {context.pod} cannot be placed: there are no nodes", {"pod": context.pod})
    reasons: dict[str, list[str]] = {}
    for name, node in sorted(context.cluster.nodes.items()):
        refused = node_filters.refuses(demand, node, context.cluster)
        if refused is not None:
            reasons.setdefault(refused.why, []).append(name)
    refusals = rule_refusals.left_out(context.gang, context.kind, context.member, context.cluster)
    each = {reason: "each " if len(nodes) > 1 else "" for reason, nodes in reasons.items()}
    for title, names in rule_refusals.by_rule(refusals).items():
        since = rule_refusals.since([refusals[name] for name in names])
        reasons[f"may not take it by {title}{since}"] = [*names]
    why = "; ".join(
        f"{rule_refusals.names_text(nodes)} {each.get(reason, '')}{reason}" for reason, nodes in reasons.items()
    )
    return Explanation(
        f"no node takes pod {context.pod}: {why}",
        {
            "pod": context.pod,
            "nodes": len(context.cluster.nodes),
            **({"rules": rule_refusals.titles(refusals.values())} if refusals else {}),
        },
    )


def _shared_claims_elsewhere(context: _DeadEndContext) -> Explanation:
    """Explain that shared claims were allocated where the pod may not go."""
    names = [w.claim.meta.name for w in context.kind.wanted[0] if w not in context.wanted]
    nodes = [context.greedy.state.names[at] for at in sorted(frozenset.intersection(*_usable(context)))]
    where = f"to {rule_refusals.names_text(nodes)}, where" if nodes else "where"
    return Explanation(
        f"pod {context.pod} may not go {where} its shared {_claims(names)} can be used{_after(context)}",
        {"pod": context.pod, "claims": sorted(names)},
    )


def _insufficient_resources(context: _DeadEndContext, nodes: Sequence[int]) -> Explanation:
    """Explain that the nodes have too little of their resources."""
    state = context.greedy.state
    left = [(state.names[node], state.left(node) or {}) for node in nodes]
    found = node_resources.shortage(context.kind.wants, left, context.cluster)
    message = f"{_subject(context)} {found.text}{_after(context)}{_with_resources(context)}"
    return Explanation(message, {"pod": context.pod, **found.details})


def _with_resources(context: _DeadEndContext) -> str:
    wants, nodes = context.kind.wants, context.cluster.nodes
    has_enough = lambda name: node_filters.lacking(wants, nodes[name].allocatable) is None  # noqa: E731
    return other_nodes.text(context.kind, context.cluster, has_enough)


def _insufficient_devices(context: _DeadEndContext, nodes: Sequence[int]) -> Explanation:
    """Explain that devices are too few: find the first request of which no node has enough."""
    for claim, wanted in enumerate(context.wanted):
        for request in wanted.parsed.requests:
            tries = [_tried(context, nodes, claim, option, listed=request.listed) for option in request.options]
            if tries and all(found is not None for found in tries):
                return _too_few(context, wanted, [found for found in tries if found is not None])
    return _conflicting_requests(context, nodes)


class _Tried(NamedTuple):
    """A request, or one of its alternatives, of which no node has enough. best: the node that has most.

    once: who gets no device twice, where devices in use count as well; else empty.
    """

    option: Option
    need: Need
    counts: Mapping[int, "_Counts"]
    best: int
    once: str

    def shortage(self, context: _DeadEndContext) -> DeviceShortage:
        name, best = context.greedy.state.names[self.best], self.counts[self.best]
        return DeviceShortage(self.option, self.need.devices, name, best.free, best.matching)


def _tried(
    context: _DeadEndContext, nodes: Sequence[int], claim: int, option: Option, *, listed: bool
) -> _Tried | None:
    """Return the nodes' counts for an option of a request, and the best node; None if by count it has enough."""
    counts = _counted(context, nodes, context.device_signatures.parsed_requests[option.parsed])
    many = any(count.many for count in counts.values())
    # Of alternatives one is taken, so each counts by itself.
    needed = requested.need(option, claim, [one.parsed for one in context.wanted], alone=listed or many)
    once = "request gets a device once, also where it is shared" if many else ""
    once = once or ("claim gets a device once, also with admin access" if option.admin else "")
    enough = {node: count.matching if once else count.free for node, count in counts.items()}
    best = max(nodes, key=lambda node: (enough[node], counts[node].matching, -node))
    return None if enough[best] >= needed.devices else _Tried(option, needed, counts, best, once)


@dataclass(frozen=True, slots=True)
class _Counts:
    """The devices of one node for one request. many: whether some can be shared, so that counting is no bound.

    failed: the error of the first device on which a selector fails.
    """

    free: int
    matching: int
    tainted: int
    many: bool
    failed: str = ""


def _counted(context: _DeadEndContext, nodes: Sequence[int], parsed: int) -> dict[int, _Counts]:
    """Return the counts of nodes for a request, computed once for nodes with equal devices and use."""
    state, known = context.greedy.state, dict[Hashable, _Counts]()
    found: dict[int, _Counts] = {}
    for node in nodes:
        key = (state.signatures[node], state.layouts[node].numbers)
        if key not in known:
            known[key] = _count(context, node, parsed)
        found[node] = known[key]
    return found


def _count(context: _DeadEndContext, node: int, parsed: int) -> _Counts:
    layout = context.greedy.state.layouts[node]
    free = set(context.greedy.state.free_devices(node))
    device_signatures = [context.device_signatures.known[number] for number in layout.numbers]
    matching = [at for at, signature in enumerate(device_signatures) if signature.answers[parsed] is Answer.YES]
    return _Counts(
        free=sum(at in free for at in matching),
        matching=len(matching),
        tainted=sum(signature.answers[parsed] is Answer.TAINTED for signature in device_signatures),
        many=any(device_signatures[at].shared for at in matching),
        failed=next(
            (
                str(answer)
                for signature in device_signatures
                if not isinstance(answer := signature.answers[parsed], Answer)
            ),
            "",
        ),
    )


def _too_few(context: _DeadEndContext, wanted: ClaimToAllocate, tries: Sequence[_Tried]) -> Explanation:
    """Explain how many devices are needed and how many the best node has."""
    option, (needed, _), counts, best, once = tries[0]
    shortages = [one.shortage(context) for one in tries]
    node, parsed = context.greedy.state.names[best], option.parsed
    claims = [f"{'' if one.shared is None else 'shared '}claim {one.claim.meta.name}" for one in context.wanted]
    others = f", none of its {len(tries)} alternatives fits{requested.others(shortages)}" if len(tries) > 1 else ""
    details: dict[str, Detail] = {
        "pod": context.pod,
        "claim": wanted.claim.meta.name,
        "request": option.name,
        "deviceClass": parsed.device_class,
        "needed": needed,
        "mostFree": counts[best].free,
        "node": node,
        **({"alternatives": [one.option.name for one in tries]} if len(tries) > 1 else {}),
    }
    start = f"{_subject(context)} needs {shortages[0].amount} on one node ({tries[0].need.place(claims)}{others})"
    number = context.device_signatures.parsed_requests[parsed]
    elsewhere = other_nodes.with_devices(context.kind, context.cluster, context.device_signatures, parsed, needed)
    if not any(count.matching for count in counts.values()):
        contradictory = no_devices.contradictory(context.kind.nodes, context.cluster, context.device_signatures)
        message = f"{start}; {_nothing(context, parsed, counts, elsewhere)}{contradictory}"
        return Explanation(message, {**details, "matching": 0}, number)
    tainted, elsewhere_tainted = counts[best].tainted, sum(count.tainted for count in counts.values())
    barred = f"; {elsewhere_tainted} elsewhere tainted" if elsewhere_tainted else ""
    barred = f" and {tainted} more tainted" if tainted else barred
    any_node, matching = "any of these" if _tied(context) else "any node", counts[best].matching
    most = f"has free is {counts[best].free} ({node}, of {matching} that match{barred})"
    if once:
        most = f"has is {matching} ({node}{barred}), and a {once}"
    message = f"{start}; the most that {any_node} {most}{_after(context)}{elsewhere}"
    return Explanation(message, {**details, "matching": matching}, number)


def _nothing(context: _DeadEndContext, parsed: ParsedRequest, counts: Mapping[int, _Counts], elsewhere: str) -> str:
    tainted = sum(count.tainted for count in counts.values())
    if tainted:
        one = _a_taint(context, parsed, counts)
        return f"all {tainted} that match have a taint that the request does not tolerate{one}"
    failed = next((count.failed for count in counts.values() if count.failed), "")
    if failed:
        return f"no device satisfies the selectors: {failed}"
    names = [context.greedy.state.names[node] for node in counts]
    why = no_devices.reason(parsed, names, context.cluster, context.device_signatures, others=not elsewhere)
    return f"{why}{elsewhere}"


def _a_taint(context: _DeadEndContext, parsed: ParsedRequest, nodes: Iterable[int]) -> str:
    """Name one of the tainted devices and its taint; empty if it is a counter that bars them."""
    state, number = context.greedy.state, context.device_signatures.parsed_requests[parsed]
    for node in nodes:
        layout = state.layouts[node]
        for listed, at in zip(layout.listed_devices, layout.numbers, strict=True):
            if context.device_signatures.known[at].answers[number] is Answer.TAINTED:
                taint = selectors.first_untolerated(listed.device.taints, parsed.tolerations)
                return f": {listed.id} has {taint.text} for one" if taint is not None else ""
    return ""


def _conflicting_requests(context: _DeadEndContext, nodes: Sequence[int]) -> Explanation:
    """Explain that each request alone would be served, but not all together or not under their constraints."""
    best, dead_end = _farthest(context, nodes)
    rules = sorted(
        {
            f"{'distinct' if r.distinct else 'match'}Attribute {r.attribute}"
            for w in context.wanted
            for r in w.parsed.rules
        }
    )
    requests = ", ".join(
        f"{requested.text(request)} (request {request.name} of claim {w.claim.meta.name})"
        for w in context.wanted
        for request in w.parsed.requests
    )
    node = context.greedy.state.names[best]
    options = [option for w in context.wanted for request in w.parsed.requests for option in request.options]
    is_one = len(options) == 1 and options[0].plain and options[0].count == 1
    them = "it" if is_one else "them"
    where = f"none of {len(nodes)} nodes serves {them}" if len(nodes) > 1 else f"node {node} does not serve {them}"
    under = f" under {' and '.join(rules)}" if rules else "" if is_one else " together"
    details: dict[str, Detail] = {
        "pod": context.pod,
        "claims": [w.claim.meta.name for w in context.wanted],
        "constraints": rules,
    }
    parsed = None
    if dead_end is not None:
        wanted = context.wanted[dead_end.claim]
        request = wanted.parsed.requests[dead_end.request] if wanted.parsed.requests else None
        details |= {"node": node, "claim": wanted.claim.meta.name, "request": request.name if request else ""}
        details["conditions"] = sorted(why.name.lower() for why in dead_end.reasons)
        if request is not None and Failure.ALL in dead_end.reasons:
            parsed = context.device_signatures.parsed_requests[request.options[0].parsed]
        if dead_end.at is not None:
            visible = context.greedy.state.visible_devices(best)
            details["device"] = str(context.greedy.state.layouts[best].listed_devices[visible[dead_end.at]].id)
    why, shortage = ("", None) if dead_end is None else _why(context, best, dead_end)
    message = f"{_subject(context)} needs {requests} on one node; {where}{under}{why}{_after(context)}"
    return Explanation(message, details, parsed, used_up=shortage.devices if shortage is not None else ())


def _farthest(context: _DeadEndContext, nodes: Sequence[int]) -> tuple[int, DeadEnd | None]:
    """Return the node whose search for devices came farthest, and where it got stuck."""
    found = [
        (node, dead_end) for node in nodes if (dead_end := context.greedy.dead_end_at(context.kind, node)) is not None
    ]
    if not found:
        return nodes[0], None
    return max(found, key=lambda pair: (pair[1].claim, pair[1].request, pair[1].found, -pair[0]))


def _why(context: _DeadEndContext, node: int, dead_end: DeadEnd) -> tuple[str, Shortage | None]:
    """Return at which request a node's search got stuck, and why devices were not taken, with one of them."""
    if Failure.DISPUTED in dead_end.reasons:
        disputed = dead_end.disputed
        return f": releases of kube-scheduler disagree because of {disputed}, and a promise may not rest on that", None
    wanted = context.wanted[dead_end.claim]
    if not dead_end.reasons or not wanted.parsed.requests:
        return "", None
    stuck = NodeDeadEnd(
        dead_end=dead_end,
        claims=[one.parsed for one in context.wanted],
        layout=context.greedy.state.layouts[node],
        visible=context.greedy.state.visible_devices(node),
        device_signatures=context.device_signatures,
    )
    why, shortage = _kept(context, stuck)
    name = context.greedy.state.names[node]
    return f": request {stuck.request.name} gets {dead_end.found} on {name}, since {why}", shortage


def _kept(context: _DeadEndContext, stuck: NodeDeadEnd) -> tuple[str, Shortage | None]:
    """Return what kept devices from the request: what is used up, before a constraint that keeps others off as well."""
    dead_end = stuck.dead_end
    given = [one for placed in context.greedy.outcome.placed for _, listed in placed.claims for one in listed]
    shortage = used_up.shortage(stuck, context.cluster, [one.use for one in given if one.use is not None])
    if shortage is not None:
        reasons = dead_end.reasons - {Failure.CONSTRAINT}
        return f"{_failures(reasons)}: {shortage.text}", shortage
    unsatisfied = next(filter(None, map(stuck.unsatisfied, stuck.request.options)), "")
    if Failure.CONSTRAINT in dead_end.reasons and unsatisfied:
        return f"{Failure.CONSTRAINT.value}: {unsatisfied}", None
    if dead_end.at is None:
        return _failures(dead_end.reasons), None
    own = [str(device) for _, device, _ in stuck.own()] if Failure.CONSTRAINT in dead_end.reasons else []
    beside = f" beside {rule_refusals.names_text(own)}" if own else ""
    return f"{_failures(dead_end.reasons)}, {stuck.device(dead_end.at)}{beside} for one", None


def _failures(reasons: Collection[Failure]) -> str:
    return " and ".join(sorted(why.value for why in reasons))


def _after(context: _DeadEndContext) -> str:
    """Return what the pods placed so far took, node by node, in words."""
    return placed_before.text(context.gang, context.greedy)


def explain_incomplete(
    gang: Gang, cluster: ClusterState, device_signatures: DeviceSignatures, greedy: FirstFitSearch
) -> Explanation | None:
    """Return the first incomplete pool that might serve the pod that got stuck; None if there is none."""
    kind, member = _stuck(gang, greedy)
    if not kind.devices:
        return None
    for node in sorted(kind.nodes):
        for pool in cluster.node_inventories[node].pools if node in cluster.node_inventories else ():
            if pool.soundness is pools.PoolHealth.INCOMPLETE and device_signatures.may_serve(pool):
                pod = kind.members[member].pod.meta.name
                return Explanation(
                    f"{pool.title} on node {node} is incomplete ({pool.why}); without it pod {pod} finds no place",
                    {"pod": pod, "node": node, "driver": pool.driver, "pool": pool.name},
                )
    return None


def _claims(names: Sequence[str]) -> str:
    return f"{'claim' if len(names) == 1 else 'claims'} {rule_refusals.names_text(names)}"
