"""The recipe of a conversion: the ResourceClaimTemplate of which a pod gets a claim for its extended resource.

The template depends only on the policy, the resource and the counts. An annotation of the pod states these three, so
that the leader can create the template; a forged annotation yields only what the resource itself would have.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from admission.api.kubernetes import claims
from admission.api.muster.claim_policies import Conversion
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.dra.requests.extended_resources import IMPLICIT

LONGEST_SLUG = 30

MAX_RECIPES = 64
"""The most conversions of one pod; what an annotation has beyond them is no conversion of Muster's."""

# A request is for at least one device, and a claim holds at most MAX_RESULTS.
_COUNTS = rf"[1-9][0-9]{{0,2}}(\+[1-9][0-9]{{0,2}}){{0,{claims.MAX_RESULTS - 1}}}"
_RECIPE = re.compile(rf"(?P<policy>[-a-z0-9.]+):(?P<resource>[^=:,\s]+)=(?P<counts>{_COUNTS})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a template is made from: the policy that converts the resource, and the count of each request."""

    policy: str
    resource: str
    counts: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.policy}:{self.resource}={'+'.join(map(str, self.counts))}"

    @property
    def template(self) -> str:
        """Return the template's name: a DNS label with part of the resource's name and a unique digest."""
        digest = hashlib.sha256(json.dumps([self.policy, self.resource, self.counts]).encode()).hexdigest()[:10]
        return f"{slug(self.resource)}-{digest}"


def recipes(annotations: Mapping[str, str]) -> tuple[Recipe, ...]:
    """Return the conversions in a pod's annotation; entries in any other form than Muster's are ignored."""
    text = annotations.get(names.CONVERTED, "")
    parts = text.split(",", MAX_RECIPES)[:MAX_RECIPES]
    found = (_RECIPE.fullmatch(part.strip()) for part in parts if part.strip())
    return tuple(
        Recipe(policy=match["policy"], resource=match["resource"], counts=tuple(map(int, match["counts"].split("+"))))
        for match in found
        if match is not None
    )


def spec(recipe: Recipe, conversion: Conversion) -> Json:
    """Return the ResourceClaimSpec (resource.k8s.io/v1) of a template."""
    selectors = {"selectors": [dict(selector) for selector in conversion.selectors]} if conversion.selectors else {}
    requests = [
        {
            "name": request_name(index),
            "exactly": {
                "deviceClassName": conversion.device_class,
                "allocationMode": claims.EXACT_COUNT,
                "count": count,
                **selectors,
            },
        }
        for index, count in enumerate(recipe.counts)
    ]
    return {"devices": {"requests": requests}}


def request_name(index: int) -> str:
    return f"devices-{index}"


def slug(resource: str) -> str:
    """Return the end of a resource's name, the most telling part, with only the characters of a DNS label."""
    text = re.sub("[^a-z0-9]+", "-", resource.removeprefix(IMPLICIT).lower())
    return text.strip("-")[-LONGEST_SLUG:].strip("-") or "devices"
