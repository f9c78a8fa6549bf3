"""Nodes stay in the order that is found from scratch by the devices that claims tie."""

from dataclasses import replace

from hypothesis import given, strategies as st

from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import STEPS, a_cluster
from tests.unit.dra.test_tied_devices import BESIDE, FOURS, PAIRS, on_roots, single, tied

GANG = st.tuples(st.integers(1, 3), st.booleans(), st.integers(1, 3))
"""How many devices a pod wants, whether they are tied, and how many such pods a gang has."""


@given(
    st.lists(st.text("xyz", min_size=2, max_size=6), min_size=2, max_size=4),
    st.lists(GANG, min_size=1, max_size=8),
    st.sampled_from(Choice),
)
def test_the_order_of_ties_that_is_kept_is_that_found_from_scratch(
    nodes: list[str], gangs: list[tuple[int, bool, int]], choice: Choice
) -> None:
    builder = a_cluster()
    for at, roots in enumerate(nodes):
        builder.node(f"n{at}", gpus=on_roots(*roots), allocatable={"cpu": "9", "pods": "100"})
    state, kept = builder.cluster(), Selectors()
    for number, (count, is_tied, size) in enumerate(gangs):
        pods = [(tied if is_tied else single)(f"g{number}-{at}", count) for at in range(size)]

        plan, fresh, whole = (
            gang_planner.plan(
                pods,
                cluster,
                selectors=selectors,
                steps=STEPS,
                beside=BESIDE,
                kinds_of_use=(*PAIRS, *FOURS),
                choice=choice,
            )
            # A what-if state is searched as a whole.
            for cluster, selectors in (
                (state, kept),
                (state, Selectors()),
                (replace(state, is_what_if=True), Selectors()),
            )
        )

        assert isinstance(plan, Plan) == isinstance(fresh, Plan) == isinstance(whole, Plan)
        if isinstance(plan, Plan) and isinstance(fresh, Plan):
            assert (plan.pods, plan.holdings) == (fresh.pods, fresh.holdings)
            uids = {one.pod.meta.uid: one.pod for one in pods}
            state = cluster_state.granted(state, plan, uids, pods[0].pod.meta.name)
