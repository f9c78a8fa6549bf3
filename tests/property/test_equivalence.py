"""Who leaves out equal nodes, and asks for no reasons, gets the plans of who looks at all of them."""

from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import Uid
from admission.dra import gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import candidate_nodes
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from tests.bench import shapes
from tests.conformance import corpus
from tests.property.gangs import gangs

STEPS = 20_000


def answers(
    pods: tuple[PodDemand, ...], ward: VirtualCluster, choice: Choice, selectors: Selectors
) -> tuple[Plan | NoPlan, Plan | NoPlan]:
    """Return the answer of who asks shortly, and of who asks for everything with nothing remembered."""
    brief = gang_planner.plan(pods, ward.cluster, selectors=selectors, steps=STEPS, choice=choice, mute=True)
    # Who asks for reasons looks at all nodes only where there is no plan, unless nothing is counted.
    with mock.patch.object(candidate_nodes, "count", return_value=None):
        full = gang_planner.plan(
            pods, ward.cluster, selectors=Selectors(ward.cluster.profile.cel), steps=STEPS, choice=choice
        )
    return brief, full


def same(brief: Plan | NoPlan, full: Plan | NoPlan) -> bool:
    if isinstance(brief, Plan) and isinstance(full, Plan):
        return (brief.pods, brief.holdings, brief.uses) == (full.pods, full.holdings, full.uses)
    return isinstance(brief, NoPlan) and isinstance(full, NoPlan)


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_gang_gets_the_same_plan(release: Release, choice: Choice, data: st.DataObject) -> None:
    gang = data.draw(gangs(release))
    cluster_state = gang.cluster

    brief, full = answers(gang.pods, VirtualCluster(cluster_state), choice, Selectors(cluster_state.profile.cel))

    assert same(brief, full), (brief, full)


CPU = 1_000


@st.composite
def asked(draw: st.DrawFn) -> tuple[int, int, Resources]:
    """Return pods, devices of each and requests of each."""
    cpu = draw(st.integers(0, 3)) * CPU
    return draw(st.integers(1, 6)), draw(st.integers(1, 3)), {"pods": 1, **({"cpu": cpu} if cpu else {})}


@pytest.mark.parametrize("choice", list(Choice))
@given(
    sizes=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=12),
    cpus=st.lists(st.sampled_from([2, 4, 9]), min_size=12, max_size=12),
    jobs=st.lists(st.tuples(asked(), st.booleans()), min_size=1, max_size=10),
)
@settings(deadline=None, max_examples=30)
def test_gangs_that_come_and_go_get_the_same_plans(
    choice: Choice, sizes: list[int], cpus: list[int], jobs: list[tuple[tuple[int, int, Resources], bool]]
) -> None:
    allocatable = [{"cpu": str(cpu)} for cpu in cpus[: len(sizes)]]
    ward = VirtualCluster(shapes.cluster([shapes.whole(size) for size in sizes], allocatable))
    selectors, running = Selectors(ward.cluster.profile.cel), list[RunningGang]()

    for at, ((count, devices, requests), ends) in enumerate(jobs):
        if ends and running:
            ward.move(departed=[running.pop(0)])
        pods = tuple(_pod(f"g{at}-{number}", devices, requests) for number in range(count))
        brief, full = answers(pods, ward, choice, selectors)
        assert same(brief, full), (brief, full)
        if isinstance(brief, Plan):
            running.append(_tenancy(brief, requests))
            ward.move(arrived=[running[-1]])

    ward.move(departed=running)
    assert not ward.cluster.taken
    assert all(left == ward.cluster.nodes[name].allocatable for name, left in ward.cluster.left.items())


def _pod(name: str, devices: int, requests: Resources) -> PodDemand:
    (claim,) = shapes.gang(1, shapes.request(devices))[0].claims
    own = type(claim)(meta=Meta(name=f"{name}-c", namespace="t", uid=Uid(f"{name}-c")), spec=claim.spec)
    return PodDemand(pod=Pod(meta=Meta(name=name, namespace="t", uid=Uid(name)), requests=requests), claims=(own,))


def _tenancy(plan: Plan, requests: Resources) -> RunningGang:
    return RunningGang(
        uses=tuple((Holder(claim=str(uid)), taken) for uid, taken in plan.uses.items()),
        requests=tuple((place.node, requests) for place in plan.pods),
    )


def test_a_share_of_a_device_comes_and_goes() -> None:
    ward = VirtualCluster(shapes.cluster([shapes.whole(1)]))
    (device,) = shapes.device_ids(ward.cluster)
    one, two = (
        RunningGang(uses=((Holder(claim=name), (DeviceUse(device, shared=True, share={"memory": 4}),)),))
        for name in "ab"
    )

    ward.move(arrived=[one, two])
    assert [share.holder.claim for share in ward.cluster.shares[device]] == ["a", "b"]
    ward.move(departed=[one])
    assert [share.holder.claim for share in ward.cluster.shares[device]] == ["b"]
    ward.move(departed=[two])
    assert ward.cluster.shares == {}
