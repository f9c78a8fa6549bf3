"""Shapes of gangs, and claims in them, are read as they were written."""

from fractions import Fraction

from hypothesis import given, strategies as st

from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import PodShape
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ALL, ClaimSpec, Constraint, DeviceRequest, Request
from admission.api.values.decoding import Reader
from admission.api.values.selectors import Toleration

NAMES = st.sampled_from(["a", "b", "gpu"])


@st.composite
def device_requests(draw: st.DrawFn, name: str) -> DeviceRequest:
    mode = draw(st.sampled_from(["ExactCount", ALL]))
    amounts = st.builds(Fraction, st.integers(1, 10**6), st.sampled_from([1, 1000]))
    return DeviceRequest(
        name=name,
        device_class=draw(st.sampled_from(["gpu.example.com", "mig.example.com"])),
        selectors=draw(st.sampled_from([(), ("device.driver == 'x'",), ("a", "b")])),
        mode=mode,
        count=draw(st.integers(1, 8)) if mode != ALL else 0,
        tolerations=draw(
            st.sampled_from([(), (Toleration(key="k", operator="Exists", effect="NoExecute", seconds=5),)])
        ),
        capacity=draw(st.none() | st.dictionaries(NAMES, amounts, max_size=2)),
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    name = draw(NAMES)
    if draw(st.booleans()):
        return Request(name=name, alternatives=(draw(device_requests(name)),))
    subs = tuple(draw(device_requests(sub)) for sub in ("one", "two"))
    return Request(name=name, alternatives=subs, first_available=True)


SPECS = st.builds(
    ClaimSpec,
    requests=st.lists(requests(), min_size=1, max_size=3).map(tuple),
    constraints=st.sampled_from([(), (Constraint(match="d/root"),), (Constraint(requests=("a",), distinct="d/x"),)]),
)


@given(SPECS)
def test_what_is_encoded_of_a_claim_is_read_again(spec: ClaimSpec) -> None:
    assert claims.decode_spec(Reader(claims.encode_spec(spec))) == spec


@given(
    st.lists(
        st.builds(PodShape, count=st.just(1), claims=st.lists(SPECS, max_size=2).map(tuple)), min_size=1, max_size=6
    )
)
def test_the_order_of_pods_makes_no_other_shape_and_its_text_is_read_again(pods: list[PodShape]) -> None:
    shape = gang_shapes.of_pods(pods)
    assert gang_shapes.of_pods(pods[::-1]) == shape
    if shape is not None:
        assert len(shape.text) <= gang_shapes.LONGEST
        assert gang_shapes.parse(shape.text) == shape
        assert shape.size == len(pods)
