"""Shapes of gangs: one text for gangs that ask for the same, from which the same is asked again."""

import pytest

from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import PodShape
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ClaimSpec, DeviceRequest, Request
from admission.api.values.decoding import Reader
from admission.errors import MalformedObjectError


def named(*names: str) -> PodShape:
    """Return a pod that asks for two devices of one root, or for one of two sorts, by requests of these names."""
    both, first, second, rest = names
    exactly = {"deviceClassName": "gpu.example.com"}
    spec = {
        "requests": [
            {"name": both, "exactly": exactly | {"count": 2}},
            {"name": rest, "firstAvailable": [{"name": first, **exactly}, {"name": second, **exactly, "count": 2}]},
        ],
        "constraints": [{"requests": [f"{rest}/{second}", both], "matchAttribute": "d/root"}],
    }
    return PodShape(count=1, claims=(claims.decode_spec(Reader({"devices": spec})),))


def test_the_names_of_requests_are_no_part_of_a_shape() -> None:
    one, other, both = (
        gang_shapes.of_pods([named(*names.split()) for names in pods])
        for pods in (["gpu a b more"], ["devices c d r"], ["gpu a b more", "devices c d r"])
    )

    assert one is not None
    assert other is not None
    assert both is not None
    assert one.text == other.text
    assert [pod.count for pod in both.pods] == [2]
    assert one.pods[0].claims[0].constraints[0].requests == ("r0", "r1/s1")
    assert gang_shapes.parse(one.text) == one


def a_pod(count: int = 1, **requests: int) -> PodShape:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 8}}]}}
    return PodShape(count=count, requests=gang_shapes.requested(requests), claims=(claims.decode_spec(Reader(spec)),))


TITLES = {
    "pods that ask for the same": ([a_pod(), a_pod()], "2x8:gpu.example.com"),
    "what they request of nodes": ([a_pod(cpu=1500, memory=2**34)], "1x8:gpu.example.com cpu=1500m,memory=16Gi"),
    "whole CPUs": ([a_pod(cpu=4000)], "1x8:gpu.example.com cpu=4"),
    "those first that are most": ([PodShape(count=1), a_pod(2)], "2x8:gpu.example.com + 1x0"),
}


@pytest.mark.parametrize(("pods", "title"), TITLES.values(), ids=TITLES)
def test_a_shape_has_a_title(pods: list[PodShape], title: str) -> None:
    shape = gang_shapes.of_pods(pods)
    assert shape is not None
    assert shape.title == title


def test_a_gang_whose_text_is_too_long_has_no_shape() -> None:
    request = DeviceRequest(name="a", device_class="gpu", selectors=("x" * gang_shapes.LONGEST,))
    spec = ClaimSpec(requests=(Request(name="a", alternatives=(request,)),))
    assert gang_shapes.of_pods([PodShape(count=1, claims=(spec,))]) is None
    assert gang_shapes.of_pods([]) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '[{"claims": [{"devices": {"requests": [{}]}}]}]'])
def test_a_text_that_is_no_shape_is_an_error(text: str) -> None:
    with pytest.raises(MalformedObjectError):
        gang_shapes.parse(text)
