"""Nodes stay in the order that is found from scratch by the devices that pods strand."""

from dataclasses import replace

from hypothesis import given, strategies as st

from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import STEPS, a_cluster
from tests.unit.dra.test_stranded_devices import BESIDE, SHARED, part

POD = st.tuples(st.sampled_from([100, 350, 620, 1000]), st.sampled_from(["1", "2", "8"]), st.integers(1, 3))
"""A part of a device, CPUs, and how many such pods a gang has."""


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(4, 24)), min_size=2, max_size=5),
    st.lists(POD, min_size=1, max_size=12),
    st.sampled_from(Choice),
)
def test_the_order_that_is_kept_is_that_which_is_found_from_scratch(
    nodes: list[tuple[int, int]], gangs: list[tuple[int, str, int]], choice: Choice
) -> None:
    """Groups of equal nodes are kept in order from gang to gang, and the first plan is looked for on few of them."""
    builder = a_cluster()
    for at, (gpus, cpus) in enumerate(nodes):
        builder.node(f"n{at}", gpus=[SHARED] * gpus, allocatable={"cpu": str(cpus)})
    state, kept = builder.cluster(), Selectors()
    for number, (amount, cpu, count) in enumerate(gangs):
        pods = [part(f"g{number}-{at}", amount, cpu) for at in range(count)]

        plan, fresh, whole = (
            gang_planner.plan(pods, cluster, selectors=selectors, steps=STEPS, beside=BESIDE, choice=choice)
            # A what-if state is searched as a whole.
            for cluster, selectors in (
                (state, kept),
                (state, Selectors()),
                (replace(state, is_what_if=True), Selectors()),
            )
        )

        assert isinstance(plan, Plan) == isinstance(fresh, Plan) == isinstance(whole, Plan)
        if isinstance(plan, Plan) and isinstance(fresh, Plan):
            assert plan.pods == fresh.pods
            state = cluster_state.granted(
                state, plan, {one.pod.meta.uid: one.pod for one in pods}, pods[0].pod.meta.name
            )
