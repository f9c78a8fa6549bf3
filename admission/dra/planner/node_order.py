"""The order in which the searches try the nodes that may take a pod: the fullest first, equally full ones by name.

Nodes with less left are filled before others are begun, so that whole nodes stay free for gangs that need them. Where
it is known what pods request beside devices, nodes go first where the pod begins the fewest unused devices, then where
it begins the fewest that can be given out in partitions (who asks for partitions finds them nowhere else), then those
where it strands the fewest (`stranded_devices`, `tied_devices`), then where shared or partitioned devices have the
least left that the pod takes a part of. Equal nodes are tried once, as a group; of a group the first by name is taken.
The order decides which plan is found, never whether there is one.

With what is stranded before partitionable devices as much of all devices is given away, but less to pods for partitions
than pods for whole devices gain (docs/measurements.md, twelve draws).
"""

from typing import TypeVar

from admission.api.values.names import NodeName
from admission.dra.allocator.stranded_devices import Consumption

Name = TypeVar("Name", int, NodeName)
FirstFitRank = tuple[int, int, int, int, int, Name]
FreeChoiceRank = tuple[int, bool, tuple[int, ...], int]


def first_fit_rank(
    free: int, first: Name, consumption: Consumption | None, stranded: int, devices: int
) -> FirstFitRank[Name]:
    """Return the sort key of a group of nodes by what a pod takes and strands; else those with few free ones first.

    free: devices. first: the group's first node by name, or its number. consumption: what the pod takes there; None if
    that is not known, or not what pods request beside devices. stranded: how much more is stranded with the pod, or of
    no use to claims that tie devices. devices: how many a pod takes at least: where it is not known what it takes of
    which, all count as partitionable ones that it begins.
    """
    if consumption is None:
        return (devices, devices, 0, 0, free, first)
    partitionable = consumption.begun_partitionable
    return (consumption.begun, partitionable, stranded, consumption.rest, consumption.unused, first)


def free_choice_rank(left: tuple[int, ...] | None, takeable: int, first: int) -> FreeChoiceRank:
    """Return the sort key of a group of nodes where Muster picks the devices: few takeable ones first, then resources.

    left: of resources; None for no limit. takeable: how many devices can still be taken, each considered alone. first:
    as above.
    """
    return (takeable, left is None, left or (), first)
