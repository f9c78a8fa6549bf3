"""What the webhook adds to a pod is added once, and takes nothing away."""

from typing import Any

from hypothesis import given, settings, strategies as st

from admission.api.values import names
from admission.podpolicy import pod_view
from tests.unit.scheduling import plan_inputs
from tests.unit.webhook import patching
from tests.unit.webhook.cases import GATES, World, a_pod

LABELS = st.none() | st.dictionaries(
    st.sampled_from([names.QUEUE, "app", "a/b~c"]), st.sampled_from(["team-a", "team-b", "x", ""])
)

POD_GATES = st.none() | st.lists(st.sampled_from([GATES[0], plan_inputs.OTHER_GATE]), max_size=3)


@settings(deadline=None)
@given(labels=LABELS, gates=POD_GATES, default=st.booleans())
def test_the_second_call_finds_nothing_left_to_do(labels: Any, gates: Any, default: bool) -> None:
    cluster_state = World().queue("team-a", default=default).queue("team-b", team="b").build()
    pod = a_pod(labels=labels, gates=gates)

    patched = patching.applied(pod, plan_inputs.added(pod_view.decode(pod, "ml"), cluster_state))

    again = pod_view.decode(patched, "ml")
    assert plan_inputs.added(again, cluster_state) == ()
    if again.queue == "team-a":
        assert plan_inputs.judged(again, cluster_state).denial is None


@settings(deadline=None)
@given(labels=LABELS, gates=POD_GATES)
def test_nothing_that_was_there_is_lost(labels: Any, gates: Any) -> None:
    cluster_state = World().queue("team-a", default=True).build()
    pod = a_pod(labels=labels, gates=gates)

    patched = patching.applied(pod, plan_inputs.added(pod_view.decode(pod, "ml"), cluster_state))

    kept = {key: value for key, value in (labels or {}).items() if key != names.QUEUE}
    assert kept.items() <= patched["metadata"].get("labels", {}).items()
    assert patched["spec"].get("schedulingGates", [])[: len(gates or [])] == (gates or [])
    assert patched["spec"]["containers"] == pod["spec"]["containers"]
