"""Recipes of conversions: the template's name, and how a pod's annotation is read."""

import pytest

from admission.api.values import formats, names
from admission.claimpolicy import conversion_recipe
from admission.claimpolicy.conversion_recipe import Recipe

GPU = "nvidia.com/gpu"
NIC = "example.com/nic"


@pytest.mark.parametrize("resource", [GPU, "deviceclass.resource.kubernetes.io/gpu", "a.b/" + "X_" * 40, "a/---"])
def test_the_name_of_the_template_is_short_and_legal(resource: str) -> None:
    name = Recipe(policy="p", resource=resource, counts=(8,)).template

    assert formats.label(name) is None
    assert len(name) <= 41
    assert name != Recipe(policy="p", resource=resource, counts=(4, 4)).template
    assert name != Recipe(policy="q", resource=resource, counts=(8,)).template


@pytest.mark.parametrize("text", ["", "x", "p:r", "p:r=0", "p:r=1+", "p:r=9999", "p:r=1=2"])
def test_a_conversion_annotation_that_muster_did_not_write_is_ignored(text: str) -> None:
    assert conversion_recipe.recipes({names.CONVERTED: text}) == ()


def test_a_conversion_recipe_survives_a_round_trip() -> None:
    found = (Recipe(policy="p.q-r", resource=GPU, counts=(1, 32)), Recipe(policy="p", resource=NIC, counts=(2,)))

    assert conversion_recipe.recipes({names.CONVERTED: ",".join(map(str, found))}) == found
