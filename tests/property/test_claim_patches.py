"""Laws of claims by annotation and of conversions: the patch is one to any reader of RFC 6902, and once is enough."""

from typing import Any

import jsonpatch
from hypothesis import given, strategies as st

from admission.api.kubernetes import claims, pod_requests
from admission.api.muster.claim_policies import Conversion
from admission.api.values import formats, json_patch, names
from admission.api.values.decoding import Reader
from admission.claimpolicy import conversion_recipe
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.match import OwnedConversion
from admission.claimpolicy.pods import claims_annotation, extended_resources

GPU, NIC, SLASHED = "nvidia.com/gpu", "example.com/nic", "example.com/a~1b"
CONVERSIONS = {
    resource: OwnedConversion("p", Conversion(resource=resource, device_class=f"{at}.example.com"))
    for at, resource in enumerate((GPU, NIC, SLASHED))
}
AMOUNTS = st.dictionaries(
    st.sampled_from([GPU, NIC, SLASHED, "cpu", "other.example/x"]),
    st.one_of(st.integers(0, 3), st.sampled_from(["0", "2", "1e0", "2000m"])),
    max_size=4,
)
CLAIMS = st.lists(st.sampled_from(["gpu", "nic", "nvidia-com-gpu"]), max_size=2, unique=True).map(
    lambda found: [{"name": name} for name in found]
)
RESOURCES = st.one_of(
    st.none(),
    AMOUNTS.map(lambda amounts: {"limits": amounts, "requests": dict(amounts)}),
    st.builds(lambda amounts, used: {"limits": amounts, "claims": used}, AMOUNTS, CLAIMS),
)
CONTAINERS = st.fixed_dictionaries({}, optional={"resources": RESOURCES})
INITS = st.fixed_dictionaries({}, optional={"resources": RESOURCES, "restartPolicy": st.just("Always")})
ANNOTATIONS = st.one_of(st.none(), st.dictionaries(st.just("x/y"), st.just("z"), max_size=1))


@st.composite
def a_pod(draw: st.DrawFn) -> dict[str, Any]:
    """Return a pod of some containers and init containers, some of which ask for devices."""
    mains, inits = draw(st.lists(CONTAINERS, min_size=1, max_size=3)), draw(st.lists(INITS, max_size=3))
    spec: dict[str, Any] = {"containers": [{"name": f"m{at}", **one} for at, one in enumerate(mains)]}
    if inits:
        spec["initContainers"] = [{"name": f"i{at}", **one} for at, one in enumerate(inits)]
    referred = draw(st.one_of(st.none(), CLAIMS))
    if referred is not None:
        spec["resourceClaims"] = [{**one, "resourceClaimTemplateName": "t"} for one in referred]
    return {"metadata": {"name": "p", "annotations": draw(ANNOTATIONS)}, "spec": spec}


def demand(pod: dict[str, Any]) -> dict[str, int]:
    """Return what a device plugin would be asked for, resource by resource."""
    requests = pod_requests.decode_spec(Reader(pod["spec"]))
    return {resource: requests[resource] for resource in CONVERSIONS if requests.get(resource)}


@given(a_pod())
def test_conversions_hold_what_a_device_plugin_would_and_leave_nothing_behind(pod: dict[str, Any]) -> None:
    draft = Draft(pod)

    denial = extended_resources.convert(draft, CONVERSIONS)

    assert denial is None
    assert jsonpatch.apply_patch(pod, list(draft.patch)) == json_patch.apply(pod, draft.patch) == draft.obj
    again = Draft(draft.obj)
    assert extended_resources.convert(again, CONVERSIONS) is None
    assert again.patch == ()
    found = conversion_recipe.recipes(draft.obj["metadata"]["annotations"] or {})
    assert {recipe.resource: sum(recipe.counts) for recipe in found} == demand(pod)
    assert demand(draft.obj) == {}
    used = [one["name"] for one in draft.obj["spec"].get("resourceClaims", [])]
    assert len(used) == len(set(used))
    for recipe in found:
        spec = conversion_recipe.spec(recipe, CONVERSIONS[recipe.resource].conversion)
        assert len(claims.decode_spec(Reader(spec)).requests) == len(recipe.counts)


@given(a_pod())
def test_every_container_may_use_at_least_what_it_asked_for(pod: dict[str, Any]) -> None:
    draft = Draft(pod)
    extended_resources.convert(draft, CONVERSIONS)
    templates = {one["name"]: one["resourceClaimTemplateName"] for one in draft.obj["spec"].get("resourceClaims", [])}
    counts = {one.template: one for one in conversion_recipe.recipes(draft.obj["metadata"]["annotations"] or {})}

    for field in ("containers", "initContainers"):
        befores, afters = (spec.get(field, []) for spec in (pod["spec"], draft.obj["spec"]))
        for before, after in zip(befores, afters, strict=True):
            had: dict[str, int] = {}
            for used in (after.get("resources") or {}).get("claims", []):
                recipe = counts.get(templates.get(used["name"], ""))
                if recipe is not None and "request" in used:
                    index = int(used["request"].rpartition("-")[2])
                    had[recipe.resource] = had.get(recipe.resource, 0) + recipe.counts[index]
            asked = pod_requests.decode_spec(Reader({"containers": [before]}))
            assert all(had.get(resource, 0) >= asked.get(resource, 0) for resource in CONVERSIONS)
            if field == "containers":
                assert all(had.get(resource, 0) == asked.get(resource, 0) for resource in CONVERSIONS)


WISHES = st.lists(
    st.tuples(st.sampled_from(["", "m0/", "m1/", "i0/"]), st.sampled_from(["gpu", "nic", "new"]), st.just("t")),
    min_size=1,
    max_size=4,
).map(lambda wishes: " , ".join(f"{container}{name}={template}" for container, name, template in wishes))


@given(a_pod(), st.one_of(WISHES, st.text(max_size=20)))
def test_claims_by_annotation_are_put_in_once(pod: dict[str, Any], text: str) -> None:
    draft = Draft(pod)

    denial = claims_annotation.attach(draft, text)

    if denial is not None:
        assert names.CLAIMS in denial.message
        assert draft.patch == ()
        return
    assert jsonpatch.apply_patch(pod, list(draft.patch)) == json_patch.apply(pod, draft.patch) == draft.obj
    again = Draft(draft.obj)
    assert claims_annotation.attach(again, text) is None
    assert again.patch == ()
    referred = [one["name"] for one in draft.obj["spec"]["resourceClaims"]]
    assert len(referred) == len(set(referred))
    assert all(formats.label(name) is None for name in referred)
