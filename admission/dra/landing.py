"""Where planned claims will land that cannot get the devices they were planned on.

Under `Pin` kube-scheduler picks the devices, pod by pod in its own order: of two pods on one node the second may come
first and take the device that the first was planned on. Who is displaced so will take another device of the node. Until
that is seen it counts as taken too, or the node would be promised to more pods than it has devices for.
"""

from admission.dra import allocating, worlds
from admission.dra.allocating import Allocated
from admission.dra.found import StepsEndedError
from admission.dra.selecting import Selectors
from admission.dra.worlds import Displaced, World


def landed(world: World, *, selectors: Selectors, steps: int) -> World:
    """Return the world with a first fit taken for every displaced claim, on the node that its pod is pinned to.

    A claim that finds nothing takes nothing: its gang does not start in time and is evicted. steps: for each claim.
    """
    for displaced in world.displaced:
        world = _landed(world, displaced, selectors, steps)
    return world


def _landed(world: World, displaced: Displaced, selectors: Selectors, steps: int) -> World:
    try:
        answer = allocating.allocate([displaced.claim], displaced.node, world, selectors=selectors, steps=steps)
    except StepsEndedError:
        return world
    if not isinstance(answer, Allocated):
        return world
    return worlds.also(world, (taking for takings in answer.takings for taking in takings), displaced.holder)
