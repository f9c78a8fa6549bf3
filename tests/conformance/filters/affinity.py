"""Rules about other pods: required affinity and anti-affinity, topology spread."""

from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import HOSTNAME, NAMESPACES, RACK, ZONE, Json, World, merge

KEYS = ((HOSTNAME, 45), (ZONE, 30), (RACK, 18), ("example.com/nowhere", 7))
LABELS = ("app", "tier", "version")
VALUES = {"app": ("a", "b", "c"), "tier": ("x", "y"), "version": ("v1", "v2")}
POLICIES = ("Honor", "Ignore")


def inter_pod_affinity(draw: Draw, world: World) -> None:
    """Required terms in the gang, and anti-affinity of pods that run against it."""
    for group in world.groups:
        own = group[0]["metadata"]["labels"]
        kinds = draw.weighted([(("podAntiAffinity",), 50), (("podAffinity",), 30), (KINDS, 20)])
        piece = {kind: {REQUIRED: _terms(draw, own)} for kind in kinds}
        if draw.chance(10):
            continue
        for pod in group:
            merge(pod, {"spec": {"affinity": piece}})
    gang = world.gang[0]["metadata"]["labels"]
    for pod in world.bound:
        if draw.chance(25):
            merge(pod, {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: _terms(draw, gang)}}}})
        if draw.chance(8):
            merge(pod, {"spec": {"affinity": {"podAffinity": {REQUIRED: _terms(draw, gang)}}}})


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KINDS = ("podAffinity", "podAntiAffinity")


def _terms(draw: Draw, own: dict[str, str]) -> list[Json]:
    return [_term(draw, own) for _ in range(draw.weighted([(1, 80), (2, 18), (3, 2)]))]


def _term(draw: Draw, own: dict[str, str]) -> Json:
    term: Json = {"topologyKey": draw.weighted(KEYS)}
    selector = label_selector(draw, own)
    if selector is not None:
        term["labelSelector"] = selector
    if draw.chance(20):
        term["namespaces"] = draw.some(NAMESPACES, least=1, most=2)
    if draw.chance(20):
        term["namespaceSelector"] = draw.pick(
            [{}, {"matchLabels": {"team": "red"}}, {"matchExpressions": [{"key": "team", "operator": "Exists"}]}]
        )
    if selector is not None:
        _add_keys(draw, term, selector)
    return term


def _add_keys(draw: Draw, term: Json, selector: Json) -> None:
    """Add matchLabelKeys and mismatchLabelKeys that are neither in each other nor in the selector, as the API asks."""
    used = {*selector.get("matchLabels", {}), *(one["key"] for one in selector.get("matchExpressions", ()))}
    free = [label for label in (*LABELS, "example.com/none") if label not in used]
    if free and draw.chance(20):
        term["matchLabelKeys"] = [free.pop(draw.number(0, len(free) - 1))]
    if free and draw.chance(12):
        term["mismatchLabelKeys"] = [draw.pick(free)]


def label_selector(draw: Draw, own: dict[str, str]) -> Json | None:
    """Draw a selector, most often one that these labels match; None where there is none."""
    kind = draw.weighted([("own", 60), ("any", 15), ("expressions", 15), ("all", 7), ("none", 3)])
    if kind == "own":
        return {"matchLabels": {name: own[name] for name in draw.some(sorted(own), least=1)}}
    if kind == "any":
        label = draw.pick(LABELS)
        return {"matchLabels": {label: draw.pick(VALUES[label])}}
    if kind == "expressions":
        return {"matchExpressions": [_expression(draw, label) for label in draw.some(LABELS, least=1, most=2)]}
    return {} if kind == "all" else None


def _expression(draw: Draw, label: str) -> Json:
    operator = draw.pick(("In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("In", "NotIn"):
        return {"key": label, "operator": operator, "values": draw.some(VALUES[label], least=1, most=2)}
    return {"key": label, "operator": operator}


def pod_topology_spread(draw: Draw, world: World) -> None:
    """Constraints of the gang, over nodes that other rules leave out of the count, and pods that are going."""
    tainted = draw.chance(40)
    for node in world.nodes:
        if tainted and draw.chance(30):
            merge(node, {"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": draw.pick(EFFECTS)}]}})
    for group in world.groups:
        own = group[0]["metadata"]["labels"]
        piece: Json = {"topologySpreadConstraints": _constraints(draw, own)}
        if draw.chance(18):
            piece["nodeSelector"] = {ZONE: draw.pick(("z1", "z2"))}
        if tainted and draw.chance(35):
            piece["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        where = draw.weighted([("", 82), ("rack", 10), ("node", 8)])
        expression = {"key": RACK, "operator": draw.pick(("In", "NotIn")), "values": ["k1"]}
        for pod in group:
            merge(pod, {"spec": piece})
            if where:
                # A pod of its own node, as Muster binds them, is counted in that domain alone.
                name = {"key": "metadata.name", "operator": "In", "values": [draw.pick(world.named())]}
                term = {"matchExpressions": [expression]} if where == "rack" else {"matchFields": [name]}
                merge(pod, {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}})
    for pod in world.bound:
        if draw.chance(8):
            pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}


EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")


def _constraints(draw: Draw, own: dict[str, str]) -> list[Json]:
    found = []
    keys = draw.some([key for key, _ in KEYS[:3]], least=1, most=draw.weighted([(1, 60), (2, 30), (3, 10)]))
    if draw.chance(4):
        keys.append("example.com/nowhere")
    for key in keys:
        constraint: Json = {"topologyKey": key, "maxSkew": draw.weighted([(1, 70), (2, 20), (3, 10)])}
        constraint["whenUnsatisfiable"] = draw.weighted([("DoNotSchedule", 90), ("ScheduleAnyway", 10)])
        selector = label_selector(draw, own)
        if selector is not None:
            constraint["labelSelector"] = selector
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw.chance(25):
            constraint["minDomains"] = draw.number(1, 5)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draw.chance(35):
                constraint[policy] = draw.pick(POLICIES)
        if selector is not None and draw.chance(20):
            used = {*selector.get("matchLabels", {}), *(one["key"] for one in selector.get("matchExpressions", ()))}
            if free := [label for label in LABELS if label not in used]:
                constraint["matchLabelKeys"] = [draw.pick(free)]
        found.append(constraint)
    return found
