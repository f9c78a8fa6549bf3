"""What the pods of a gang took that were placed before the one that got stuck, node by node, in words."""

from collections import Counter
from collections.abc import Sequence

from admission.dra.diagnosis import rule_refusals
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.planner.pod_groups import Gang, Placed


def text(gang: Gang, greedy: FirstFitSearch) -> str:
    """Return the text, to be added to a sentence; empty without such pods."""
    by_node: dict[int, list[Placed]] = {}
    for placed in greedy.outcome.placed:
        by_node.setdefault(placed.node, []).append(placed)
    if not by_node:
        return ""
    parts = [
        _used_by(gang, greedy.state.names[node], placed)
        for node, placed in list(by_node.items())[: rule_refusals.MOST_NAMED]
    ]
    rest = len(by_node) - rule_refusals.MOST_NAMED
    return ", after " + ", ".join(parts) + (f" and others on {rest} more nodes" if rest > 0 else "")


def _used_by(gang: Gang, node: str, placed: Sequence[Placed]) -> str:
    names = [gang.kinds[one.kind].members[one.member].pod.meta.name for one in placed]
    classes = Counter(
        device.option.parsed.device_class for one in placed for _, given in one.claims for device in given
    )
    names_text = rule_refusals.names_text(names)
    if not classes:
        return f"{names_text} went to {node}"
    # Devices of several classes, such as GPUs and NICs, have no sum.
    taken = " and ".join(f"{count} of class {name}" for name, count in sorted(classes.items()))
    if len(classes) < 2:
        taken = str(classes.total())
    return f"{names_text} took {taken} on {node}"
