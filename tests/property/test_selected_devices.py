"""Nodes stay in the order that is found from scratch by the models that others name."""

from dataclasses import replace

from hypothesis import given, strategies as st

from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan
from admission.dra.requests.kinds_of_use import Selection
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import STEPS, a_pod, a_request
from tests.unit.dra.test_selected_devices import BESIDE, NAMED, model, nodes, texts

GANG = st.tuples(st.sampled_from([(), ("t4",), ("g2",)]), st.integers(1, 3))
"""The models that the pods of a gang name, and how many pods there are."""


@given(
    st.lists(st.tuples(st.sampled_from(["t4", "g2", "v100"]), st.integers(2, 9)), min_size=2, max_size=5),
    st.lists(GANG, min_size=1, max_size=8),
    st.sampled_from(Choice),
)
def test_the_order_by_models_that_is_kept_is_that_found_from_scratch(
    shapes: list[tuple[str, int]], gangs: list[tuple[tuple[str, ...], int]], choice: Choice
) -> None:
    state, kept = nodes(*(name for name, _ in shapes), cpus=[cpus for _, cpus in shapes]).cluster(), Selectors()
    for number, (names, size) in enumerate(gangs):
        request = a_request("gpu", 1, *map(model, names))
        pods = [a_pod(f"g{number}-{at}", request, requests={"cpu": "1"}) for at in range(size)]

        plan, fresh, whole = (
            gang_planner.plan(
                pods,
                cluster,
                selectors=selectors,
                steps=STEPS,
                beside=BESIDE,
                kinds_of_use=(*NAMED, Selection(texts("v100"), 11)),
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
