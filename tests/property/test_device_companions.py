"""What is kept of pods and their devices is what is found from scratch."""

from dataclasses import replace

from hypothesis import given, strategies as st

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.pods import Pod
from admission.dra.inventory.selectors import Selectors
from admission.scheduling.cache.device_companions import DeviceCompanions
from tests.unit.scheduling.test_device_companions import a_card, a_claim, a_pod, a_snapshot, means


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["7", "14", None])), min_size=2, max_size=5))
def test_slices_that_change_are_read_again_and_no_others_have_to(worlds: list[dict[str, str | None]]) -> None:
    """Cards with so much compute, or without their counters."""
    chosen = {"selectors": [{"cel": {"expression": "device.attributes['gpu'].profile == '1g'"}}]}
    kept, selectors = DeviceCompanions(), Selectors()
    for world in worlds:
        slices: dict[str, Slice] = {}
        for name, compute in world.items():
            for key, one in a_card(name, compute or "7").items():
                if compute is not None or key == "devices":
                    slices[f"{name}-{key}"] = one
        snapshot = a_snapshot(a_pod("p", claim="one", cpu="1"), a_claim("one", chosen))

        assert kept.update(replace(snapshot, slices=slices), selectors) == means(replace(snapshot, slices=slices))


Job = tuple[int, int, str | None, str]
"""CPUs, devices, memory of shared ones, and the phase of the pod, or what there is in place of one."""

WORLD = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(
        st.integers(1, 64),
        st.integers(1, 8),
        st.sampled_from([None, "20", "40"]),
        st.sampled_from(["Pending", "Running", "Succeeded", "claim only", "pod only"]),
    ),
)


@given(st.lists(WORLD, max_size=4))
def test_what_is_kept_equals_what_is_found_from_scratch(worlds: list[dict[str, Job]]) -> None:
    kept = DeviceCompanions()
    for world in worlds:
        objects: list[Pod | Claim] = []
        for name, (cpu, count, memory, phase) in world.items():
            shared = {"capacity": {"requests": {"memory": memory}}} if memory else {}
            pod = a_pod(name, claim=name, cpu=str(cpu), phase="Pending" if phase == "pod only" else phase)
            objects += [pod] if phase != "claim only" else []
            objects += [a_claim(name, {"count": count, **shared})] if phase != "pod only" else []
        snapshot = a_snapshot(*objects)

        assert kept.update(snapshot, Selectors()) == means(snapshot)
