"""Jobs whose controller dies in the middle of its writes, and the cycle that this ends."""

from tests.builders import ClusterBuilder
from tests.unit.cycle.fences import KilledError
from tests.unit.cycle.jobs import Jobs, Play

IMMORTAL = 10**9


class MortalJobs(Jobs):
    """Its controller dies when it has no lives left, of which each write that counts takes one."""

    def __init__(self, builder: ClusterBuilder, *, graceful: bool = False, late: int = 0) -> None:
        super().__init__(builder, graceful=graceful, late=late)
        self.lives_left = IMMORTAL

    def _call(self, what: str, name: str) -> None:
        self._count()
        super()._call(what, name)

    def _count(self) -> None:
        self.lives_left -= 1
        if self.lives_left < 0:
            raise KilledError


async def step(play: Play) -> None:
    """Run a cycle; where its leader dies, another one takes over."""
    try:
        await play.forget_changes()
    except (KilledError, ExceptionGroup):
        assert isinstance(play.cluster, MortalJobs)
        play.cluster.lives_left = IMMORTAL
        play.succeed()
