"""Random worlds for kube-scheduler's filters, in the format of tests/controlplane/README.md: one for each seed.

Each family is about one plugin, drawn so that this plugin refuses often and seldom everywhere; a mixed world has rules
of several families.
"""

from collections.abc import Callable, Mapping

from tests.conformance.filters import affinity, devices, disks, node_rules, resources, volumes, world
from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import Json, World

FAMILIES: Mapping[str, Callable[[Draw, World], None]] = {
    "DynamicResources": devices.dynamic_resources,
    "InterPodAffinity": affinity.inter_pod_affinity,
    "NodeAffinity": node_rules.node_affinity,
    "NodeDeclaredFeatures": node_rules.node_declared_features,
    "NodeName": node_rules.node_name,
    "NodePorts": node_rules.node_ports,
    "NodeResourcesFit": resources.node_resources_fit,
    "NodeUnschedulable": node_rules.node_unschedulable,
    "NodeVolumeLimits": disks.node_volume_limits,
    "PodTopologySpread": affinity.pod_topology_spread,
    "TaintToleration": node_rules.taint_toleration,
    "VolumeBinding": volumes.volume_binding,
    "VolumeRestrictions": disks.volume_restrictions,
    "VolumeZone": disks.volume_zone,
}
"""By the plugin that they are about."""

MIXED = "mixed"
PLANNED = "planned"
"""A world mixed of what Muster simulates, for plans."""
SIMULATED = (
    "DynamicResources",
    "InterPodAffinity",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
)
COMPETING = "competing"
"""A world of claims that wait for volumes that are there, for plans of one gang and of two."""
NOMINATED = "nominated"
"""A world mixed of what nominated pods count for, with pods of some priorities for which a node is kept."""
BESIDE_NOMINATED = tuple(name for name in SIMULATED if name != "DynamicResources")
VERSIONS = ("1.37", "1.36")

APART = ("NodeName",)
"""Families that leave too little to the others."""


def seeded(seed: int, *, family: str | None = None, version: str | None = None) -> Json:
    """Return the world of this seed: of any family, or of one; of any version, or of one."""
    draw = Draw(seed)
    # Drawn in any case: a seed means one world, whoever asks for it.
    drawn_version, drawn_family = draw.pick(VERSIONS), draw.pick((*FAMILIES, *[MIXED] * 5))
    found = world.base(draw, version or drawn_version)
    for name in _families(draw, family or drawn_family):
        (volumes.competing_claims if name == COMPETING else FAMILIES[name])(draw, found)
    if family == NOMINATED:
        _nominate(draw, found)
    return found.json(draw)


def _nominate(draw: Draw, found: World) -> None:
    """Give pods priorities, and let some of those that run wait for their node instead."""
    for pod in found.pods:
        pod["spec"]["priority"] = draw.number(0, 2)
    for pod in found.bound:
        if draw.chance(60):
            pod["status"] = {"nominatedNodeName": pod["spec"].pop("nodeName")}


def _families(draw: Draw, family: str) -> list[str]:
    if family == PLANNED:
        return draw.some(SIMULATED, least=1, most=2)
    if family == NOMINATED:
        return draw.some(BESIDE_NOMINATED, least=1, most=2)
    if family != MIXED:
        return [family]
    return draw.some([name for name in FAMILIES if name not in APART], least=2, most=3)
