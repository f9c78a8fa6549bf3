"""Which rules between pods keep a pod off nodes, in words."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from admission.api.values.names import NodeName
from admission.dra.planner import node_filters
from admission.dra.planner.pod_groups import Gang, PodKind
from admission.dra.state.cluster_state import ClusterState
from admission.filters.refusal import ABOUT_LABELS, Refusal

MOST_NAMED = 3
"""How many nodes, pods or claims a message names before it counts the rest."""


def names_text(names: Sequence[str]) -> str:
    """Return names as a list in words; those beyond the first few are counted."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def left_out(gang: Gang, kind: PodKind, member: int, cluster: ClusterState) -> dict[NodeName, Refusal]:
    """Return the nodes that a rule keeps a pod off from the beginning, which pass all filters of nodes."""
    if gang.rules is None or not gang.rules.may_exclude(kind.rules):
        return {}
    passed = sorted(node_filters.passed(kind.members[0], cluster) - kind.nodes)
    refusals = ((name, gang.rules.excludes(kind.rules, cluster.nodes[name])) for name in passed)
    return {name: of_member(refusal, gang, kind, member) for name, refusal in refusals if refusal is not None}


def of_member(refusal: Refusal, gang: Gang, kind: PodKind, member: int) -> Refusal:
    """Return a refusal with the name of the member's own claim: rules are asked for one pod of those that are equal."""
    if gang.rules is None or refusal.rule in ABOUT_LABELS:
        return refusal
    asked, pod = gang.rules.states[kind.rules].pod, kind.members[member].pod
    claims = {
        one.claim_of(asked.meta.name): own.claim_of(pod.meta.name)
        for one, own in zip(asked.rules.volumes, pod.rules.volumes, strict=True)
    }
    return refusal._replace(key=claims.get(refusal.key, refusal.key))


def by_rule(refusals: Mapping[NodeName, Refusal]) -> dict[str, list[NodeName]]:
    """Return the nodes that each rule keeps a pod off."""
    found: dict[str, list[NodeName]] = {}
    for name, refusal in refusals.items():
        found.setdefault(refusal.title, []).append(name)
    return found


def text(refusals: Mapping[NodeName, Refusal], said: Collection[str] = ()) -> str:
    """Return the rules with the nodes that they keep a pod off, and with the reason as `since` says it.

    said: rules of which it was said that they keep it off other nodes beside pods of its gang.
    """
    parts: list[str] = []
    for title, nodes in by_rule(refusals).items():
        why = since([refusals[name] for name in nodes])
        parts.append(
            f"the same keeps it off {names_text(nodes)} without them{why}"
            if title in said
            else f"{title} keeps it off {names_text(nodes)}{why}"
        )
    return "; ".join(parts)


def since(refusals: Sequence[Refusal]) -> str:
    """Return why one rule keeps a pod off nodes: of a single node, or where all of them lack the label; else empty."""
    first = refusals[0]
    if len(refusals) == 1:
        return f", since {first.why}"
    # A label that is misspelt keeps all nodes off alike, and is mended in the rule or at the nodes, not at other pods.
    without_label = all(one.rule in ABOUT_LABELS and one.value is None and not one.text for one in refusals)
    return f", since none of them has the label {first.key}" if without_label else ""


def titles(refusals: Iterable[Refusal]) -> list[str]:
    """Return the rules, each once."""
    return list(dict.fromkeys(refusal.title for refusal in refusals))
