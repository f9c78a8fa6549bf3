"""Why a gang got stuck, in words and numbers.

A sentence names the pod, its claim and request, the first condition that fails, and what the best node has. It is read
from a greedy search that has come as far as it could.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from admission.api.reasons import Detail
from admission.dra import filters, pools
from admission.dra.asking import Ask, ClaimAsk
from admission.dra.demands import Gang, PodKind, Wanted
from admission.dra.placing import Placed, Placer
from admission.dra.profiles import Answer, Profiles
from admission.dra.worlds import World

SHOWN = 3
"""How many nodes, pods or claims a sentence names before it counts the rest."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A sentence, the numbers behind it, and the ask of which there was not enough, if it was that."""

    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
    ask: int | None = None


@dataclass(frozen=True, slots=True)
class _Scene:
    """Where the greedy search got stuck."""

    gang: Gang
    world: World
    profiles: Profiles
    placer: Placer
    kind: PodKind
    member: int
    wanted: tuple[Wanted, ...]
    """Claims of the stuck pod that are still to be allocated."""

    @property
    def pod(self) -> str:
        return self.kind.members[self.member].pod.meta.name


def stuck(gang: Gang, world: World, profiles: Profiles, placer: Placer) -> Explanation:
    """Explain where a greedy search got stuck. There must be a kind that found no place."""
    number = placer.outcome.stuck or 0
    kind = gang.kinds[number]
    allocated = placer.state.allocated
    member = sum(placed.kind == number for placed in placer.outcome.placed)
    wanted = tuple(w for w in kind.wanted[member] if w.shared is None or allocated[w.shared] is None)
    scene = _Scene(gang, world, profiles, placer, kind, member, wanted)
    if not kind.nodes:
        return _nowhere(scene)
    nodes = _open_nodes(scene)
    if not nodes:
        return _bound(scene)
    roomy = [node for node in nodes if _lacking(scene, node) is None]
    if not roomy:
        return _cramped(scene, nodes)
    return _short(scene, roomy)


def _open_nodes(scene: _Scene) -> list[int]:
    """Return the nodes to which filters and shared claims let the pod go."""
    allocated = scene.placer.state.allocated
    usable = [allocated[wanted.shared] for wanted in scene.kind.wanted[0] if wanted.shared is not None]
    names = scene.placer.state.names
    return [
        at
        for at, name in enumerate(names)
        if name in scene.kind.nodes and all(nodes is None or at in nodes for nodes in usable)
    ]


def _nowhere(scene: _Scene) -> Explanation:
    """No node passes the filters."""
    demand = scene.kind.members[scene.member]
    if not scene.world.nodes:
        return Explanation(f"pod {scene.pod} cannot be placed: there are no nodes", {"pod": scene.pod})
    reasons: dict[str, list[str]] = {}
    for name, node in sorted(scene.world.nodes.items()):
        refused = filters.refuses(demand, node, scene.world)
        if refused is not None:
            reasons.setdefault(refused.why, []).append(name)
    why = "; ".join(f"{_listed(nodes)} {reason}" for reason, nodes in reasons.items())
    return Explanation(f"no node takes pod {scene.pod}: {why}", {"pod": scene.pod, "nodes": len(scene.world.nodes)})


def _bound(scene: _Scene) -> Explanation:
    """Shared claims were allocated where the pod may not go."""
    names = [w.claim.meta.name for w in scene.kind.wanted[0] if w not in scene.wanted]
    return Explanation(
        f"pod {scene.pod} may not go where its shared {_claims(names)} can be used{_after(scene)}",
        {"pod": scene.pod, "claims": sorted(names)},
    )


def _lacking(scene: _Scene, node: int) -> str | None:
    return filters.lacking(scene.kind.wants, scene.placer.state.left(node))


def _cramped(scene: _Scene, nodes: Sequence[int]) -> Explanation:
    """Resources of nodes are short."""
    resource = _lacking(scene, nodes[0]) or ""
    needed = scene.kind.wants[resource]
    state = scene.placer.state
    most, best = max(((state.left(node) or {}).get(resource, 0), -node) for node in nodes)
    unit = "m" if resource == "cpu" else ""
    name = state.names[-best]
    return Explanation(
        f"pod {scene.pod} needs {needed}{unit} {resource}; the most that is left on a node where it may go is"
        f" {most}{unit} ({name}){_after(scene)}",
        {"pod": scene.pod, "resource": resource, "needed": needed, "left": most, "node": name},
    )


def _short(scene: _Scene, nodes: Sequence[int]) -> Explanation:
    """Devices are short: find the request that fails on the node that comes farthest."""
    asks = {ask: at for at, ask in enumerate(scene.profiles.need.asks)}
    needs = _needs(wanted.ask for wanted in scene.wanted)
    for wanted in scene.wanted:
        for request in wanted.ask.requests:
            ask = asks[request.ask]
            counts = {node: _count(scene, node, ask) for node in nodes}
            best = max(nodes, key=lambda node: (counts[node].free, -node))
            if counts[best].free < needs[request.ask]:
                return _too_few(scene, wanted, request.name, request.ask, needs[request.ask], counts, best)
    return _clash(scene, nodes)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Devices of one node for one ask."""

    free: int
    matching: int
    tainted: int


def _count(scene: _Scene, node: int, ask: int) -> _Counts:
    layout = scene.placer.state.layouts[node]
    free = set(scene.placer.state.free_spots(node))
    answers = [scene.profiles.known[number].answers[ask] for number in layout.numbers]
    matching = [at for at, answer in enumerate(answers) if answer is Answer.YES]
    return _Counts(sum(at in free for at in matching), len(matching), answers.count(Answer.TAINTED))


def _too_few(  # noqa: PLR0913, PLR0917 - what the sentence says
    scene: _Scene, wanted: Wanted, request: str, ask: Ask, needed: int, counts: Mapping[int, _Counts], best: int
) -> Explanation:
    """Say how many devices are needed and how many the best node has."""
    node = scene.placer.state.names[best]
    place = f"request {request} of claim {wanted.claim.meta.name}"
    devices = f"{needed} {'device' if needed == 1 else 'devices'} of class {ask.device_class}"
    details: dict[str, Detail] = {
        "pod": scene.pod,
        "claim": wanted.claim.meta.name,
        "request": request,
        "deviceClass": ask.device_class,
        "needed": needed,
        "mostFree": counts[best].free,
        "node": node,
    }
    start = f"pod {scene.pod} needs {devices} on one node ({place})"
    number = list(scene.profiles.need.asks).index(ask)
    if not any(count.matching for count in counts.values()):
        return Explanation(f"{start}; {_nothing(ask, counts)}", {**details, "matching": 0}, number)
    tainted = f" and {counts[best].tainted} more tainted" if counts[best].tainted else ""
    return Explanation(
        f"{start}; the most that any node has free is {counts[best].free} ({node}, of {counts[best].matching}"
        f" that match{tainted}){_after(scene)}",
        {**details, "matching": counts[best].matching},
        number,
    )


def _nothing(ask: Ask, counts: Mapping[int, _Counts]) -> str:
    tainted = sum(count.tainted for count in counts.values())
    if tainted:
        return f"all {tainted} that match have a taint that the request does not tolerate"
    nodes = f"the {len(counts)} nodes where the pod may go" if len(counts) > 1 else "the only node where the pod may go"
    return f"none on {nodes} satisfies the selectors" if ask.texts else f"{nodes} have no devices"


def _clash(scene: _Scene, nodes: Sequence[int]) -> Explanation:
    """Every request alone would be served; together, or with their constraints, they are not."""
    rules = sorted(
        {f"{'distinct' if r.distinct else 'match'}Attribute {r.attribute}" for w in scene.wanted for r in w.ask.rules}
    )
    requests = ", ".join(
        f"{request.count} of class {request.ask.device_class} (request {request.name} of claim {w.claim.meta.name})"
        for w in scene.wanted
        for request in w.ask.requests
    )
    under = f" under {' and '.join(rules)}" if rules else " together"
    node = scene.placer.state.names[nodes[0]]
    where = f"none of {len(nodes)} nodes" if len(nodes) > 1 else f"node {node} does not"
    verb = " serves them" if len(nodes) > 1 else " serve them"
    return Explanation(
        f"pod {scene.pod} needs {requests} on one node; {where}{verb}{under}{_after(scene)}",
        {"pod": scene.pod, "claims": [w.claim.meta.name for w in scene.wanted], "constraints": rules},
    )


def _needs(claims: Iterable[ClaimAsk]) -> dict[Ask, int]:
    needs: dict[Ask, int] = {}
    for claim in claims:
        for request in claim.requests:
            needs[request.ask] = needs.get(request.ask, 0) + request.count
    return needs


def _after(scene: _Scene) -> str:
    """Say what the pods placed so far took, node by node."""
    by_node: dict[int, list[Placed]] = {}
    for placed in scene.placer.outcome.placed:
        by_node.setdefault(placed.node, []).append(placed)
    if not by_node:
        return ""
    parts = [_took(scene, node, placed) for node, placed in list(by_node.items())[:SHOWN]]
    rest = len(by_node) - SHOWN
    return ", after " + ", ".join(parts) + (f" and others on {rest} more nodes" if rest > 0 else "")


def _took(scene: _Scene, node: int, placed: Sequence[Placed]) -> str:
    names = [scene.gang.kinds[one.kind].members[one.member].pod.meta.name for one in placed]
    devices = sum(len(picks) for one in placed for _, picks in one.claims)
    return f"{_listed(names)} took {devices} on {scene.placer.state.names[node]}"


def busy(explanation: Explanation, scene_placer: Placer, world: World, profiles: Profiles) -> Explanation:
    """Add who has the devices that are missing."""
    if explanation.ask is None:
        return Explanation(f"{explanation.message}; it would fit if nothing else were in use", explanation.details)
    state = scene_placer.state
    used = {
        spot.id: world.taken[spot.id]
        for node in range(len(state.names))
        for spot, number in zip(state.layouts[node].spots, state.layouts[node].numbers, strict=True)
        if spot.id in world.taken and profiles.known[number].answers[explanation.ask] is Answer.YES
    }
    holders = sorted({str(holder) for holder in used.values()})
    if not holders:
        return Explanation(f"{explanation.message}; it would fit if nothing else were in use", explanation.details)
    who = _listed(holders)
    devices = f"{len(used)} {'device' if len(used) == 1 else 'devices'} that would do"
    return Explanation(
        f"{explanation.message}; {devices} {'is' if len(used) == 1 else 'are'} in use by {who}",
        {**explanation.details, "inUse": sorted(map(str, used)), "holders": holders},
        explanation.ask,
    )


def incomplete(gang: Gang, world: World, profiles: Profiles, number: int) -> Explanation | None:
    """Return the first pool with missing slices that might serve a pod of the kind; None when there is none."""
    kind = gang.kinds[number]
    if not kind.devices:
        return None
    for node in sorted(kind.nodes):
        for pool in world.shelves[node].pools if node in world.shelves else ():
            if pool.soundness is pools.Soundness.INCOMPLETE and profiles.may_serve(pool):
                pod = kind.members[0].pod.meta.name
                return Explanation(
                    f"{pool.title} on node {node} is incomplete ({pool.why}); without it pod {pod} finds no place",
                    {"pod": pod, "node": node, "driver": pool.driver, "pool": pool.name},
                )
    return None


def _claims(names: Sequence[str]) -> str:
    return f"{'claim' if len(names) == 1 else 'claims'} {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    """Write names as people do; those beyond the first few are counted."""
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
