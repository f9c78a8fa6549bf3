"""How `make test` shares files out over processes: which of them start a control plane, and what comes first.

The tests of the real control plane mostly wait, so two processes run them side by side, each with a control plane that
its files share. Beside them a third computes, in the time that they leave, and all three do what is left in the end.

The marks of xdist's own groups have no effect under pytest 9.2, which no longer reads the name that xdist 3.8 gives to
a test.
"""

import os

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

E2E = "tests/e2e/"
LANES = 2
"""How many processes have a control plane."""

COMPUTING = tuple(f"{E2E}test_{name}.py" for name in ("allocator_oracle", "filters_oracle", "month"))
"""What stands there for what it is about, and starts no control plane."""

LONG = ("tests/e2e/test_page", "tests/e2e/test_muster_under_fire.py")
"""What takes minutes begins first. All files of pages, which forward the same ports of the machine, are one unit."""

THEN = (*COMPUTING, "tests/property/", "tests/conformance/", "tests/integration/")
"""What comes first of all else: computing, while the lanes need the machine; at the end short files, which even out."""

NICENESS = 5
"""Of a process beside the lanes: it computes, while those in the lanes have to answer in time."""


def number(worker: str) -> int:
    """Return the number of a process of xdist, by its name."""
    return int(worker.removeprefix("gw"))


def give_way(worker: str) -> None:
    """Let a process that has no lane run after those that have one."""
    if number(worker) >= LANES:
        os.nice(NICENESS)


def needs_control_plane(unit: str) -> bool:
    return unit.startswith(E2E) and unit not in COMPUTING


class Lanes(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Spreads files over processes; only the first two get those of the real control plane, and before all others."""

    def _split_scope(self, nodeid: str) -> str:
        return LONG[0] if nodeid.startswith(LONG[0]) else str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        in_lane = node in sorted(self.nodes, key=lambda one: number(one.gateway.id))[:LANES]
        mine = [unit for unit in self.workqueue if in_lane or not needs_control_plane(unit)]
        if not mine:
            node.shutdown()
            return
        self.workqueue.move_to_end(min(mine, key=_turn), last=False)
        super()._assign_work_unit(node)


def _turn(unit: str) -> tuple[bool, int]:
    """Return when a file's turn is; of files with the same turn the first collected comes first."""
    computes = not needs_control_plane(unit)
    order = THEN if computes else LONG
    return computes, next((turn for turn, prefix in enumerate(order) if unit.startswith(prefix)), len(order))
