"""An answer of kube-scheduler's filters held against Muster's: node by node, for each pod of the gang in its turn.

What has to agree: every node that passes passes, and the plugin that refuses a node is one of those that refuse it here
too. kube-scheduler names the first plugin only, so that later ones may be unknown to it. Nodes that are refused by a plugin that
Muster does not simulate are not compared, nor the wording of reasons.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.conformance.filters import judge

Json = dict[str, Any]


class Difference(NamedTuple):
    """A node that one refuses and the other does not, or by other plugins. plugin: whose rule it is about."""

    pod: str
    node: str
    plugin: str
    told: str


def differences(world: Json, answer: Json) -> Iterator[Difference]:
    """Yield what differs between the answer to a world and ours."""
    placed = [pod["node"] for pod in answer["pods"]]
    for member, expected, got in zip(world["gang"], answer["pods"], judge.refusals(world, placed), strict=True):
        name = member["pod"]["metadata"]["name"]
        if "error" in expected and not expected["fits"]:
            continue
        for node in (one["metadata"]["name"] for one in world["nodes"]):
            refused = expected["refused"].get(node)
            ours = got.get(node, frozenset())
            if refused is None and ours:
                plugin = min(ours)
                yield Difference(name, node, plugin, f"fits, and is refused by {plugin} here")
            if refused is not None and refused["plugin"] in judge.JUDGED and refused["plugin"] not in ours:
                here = f"refused by {', '.join(sorted(ours))}" if ours else "let through"
                yield Difference(
                    name, node, refused["plugin"], f"refused by {refused['plugin']} {refused['reasons']}, {here} here"
                )
