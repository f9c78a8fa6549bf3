"""An answer of kube-scheduler's filters held against Muster's: node by node, for each pod of the gang in its turn.

Compared is whether a node is refused. Not compared are nodes that a plugin refuses which Muster does not simulate,
since later plugins are not asked then, pods for which a plugin had an error, and claims that are being allocated. By
which plugin a node is refused, where several would refuse it, is counted, but is no difference: PreFilter of one comes
before Filter of all.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.conformance import filter_judge

Json = dict[str, Any]

JUDGED = frozenset(plugin for plugin, _ in (*filter_judge.NODE_FILTERS.values(), *filter_judge.RULES.values())) | {
    "DynamicResources",
    "NodeResourcesFit",
}
"""The plugins that Muster simulates."""

PENDING = "is in the process of being allocated"
"""What kube-scheduler says of a shared claim after Reserve, which is where the program leaves pods with volumes."""


class Compared(NamedTuple):
    """A node for one pod of a gang: the plugin that refuses it there and here, or empty text."""

    pod: str
    node: str
    there: str
    here: str

    def __str__(self) -> str:
        return f"pod {self.pod} on {self.node}: expected {self.there or 'fits'}, got {self.here or 'fits'}"

    @property
    def differs(self) -> bool:
        return bool(self.there) != bool(self.here)

    @property
    def plugin(self) -> str:
        """Return whose rule it is about, or that there is none."""
        return self.there or self.here or "fits"


def compared(world: Json, answer: Json) -> Iterator[Compared]:
    """Yield what both say of each node that can be compared, for each pod in turn.

    Pods are placed as in kube-scheduler's answer, so that one difference does not bring others with it.
    """
    ours = filter_judge.answer(world, [pod["node"] for pod in answer["pods"]])
    for member, there, here in zip(world["gang"], answer["pods"], ours["pods"], strict=True):
        if "error" in there and not there["fits"]:
            continue
        for name in (node["metadata"]["name"] for node in world["nodes"]):
            if PENDING in str(there["refused"].get(name)):
                continue
            found = [one["refused"].get(name, {}).get("plugin", "") for one in (there, here)]
            if not found[0] or JUDGED.issuperset(found[0].split(",")):
                yield Compared(member["pod"]["metadata"]["name"], name, *found)


def difference(record: Json, _: str = "") -> str | None:
    """Return how our answer about a recorded world differs; None where they agree. A world has its own version."""
    found = [str(one) for one in compared(record["world"], record["answer"]) if one.differs]
    return "\n       ".join(found) or None
