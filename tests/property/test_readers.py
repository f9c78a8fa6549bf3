"""Whatever two teams do, nothing that Muster writes for one of them names what is in the other's namespace."""

import asyncio
from typing import Any

from hypothesis import given, strategies as st

from admission.api.values import names
from tests import teams
from tests.builders import a_cluster
from tests.teams import LOWER, OURS, THEIRS

Step = tuple[str, int, int, bool]
"""What is done, a number of pods, a priority, and a choice."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("ours", "theirs", "cycle", "end", "finish", "succeed")),
        st.integers(1, 4),
        st.sampled_from((0, 10)),
        st.booleans(),
    ),
    min_size=4,
    max_size=14,
)


async def happen(steps: list[Step], *, strict: bool, quota: int) -> teams.Scene:
    """Play what two teams do with two queues, of which each may take back what the other has borrowed."""
    rules: dict[str, Any] = {"preemption": LOWER | teams.ANY}
    rules |= {"queueingStrategy": "StrictFIFO"} if strict else {}
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=0)
    for queue in ("left", "right"):
        builder.queue(queue, gpus=quota, parent="top", **rules)
    scene = teams.a_scene(builder)
    for number, (what, pods, priority, is_left) in enumerate(steps):
        if what in ("ours", "theirs"):
            runtime = {names.RUNTIME: "1h"} if is_left else {}
            namespace = OURS if what == "ours" else THEIRS
            queue = "left" if (what == "ours") is (priority == 0) else "right"
            scene.cluster.come(namespace, f"w{number}", queue=queue, pods=pods, priority=priority, annotations=runtime)
        elif what == "end":
            scene.cluster.end_grace()
        elif what == "finish" and scene.cluster.running():
            scene.cluster.finish_job(min(scene.cluster.running()))
        elif what == "succeed":
            scene.play.succeed()
        await scene.cycles(1 + pods % 2)
    return scene


@given(STEPS, st.booleans(), st.sampled_from((2, 4)))
def test_whatever_teams_do_nothing_is_written_for_one_of_them_that_names_the_other(
    steps: list[Step], strict: bool, quota: int
) -> None:
    scene = asyncio.run(happen(steps, strict=strict, quota=quota))

    assert not [*scene.cluster.leaks()]
