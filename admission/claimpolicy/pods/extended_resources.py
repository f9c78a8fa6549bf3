"""Conversion of a pod's extended resources to claims, so that pods written for a device plugin work with DRA.

Each resource becomes one claim, with a request for each container that runs to the end of the pod. An init container
that ends before the others start shares their devices, as with a device plugin: the pod needs the sum over its
containers, or the largest need of these init containers if that is more.

The claim's template depends only on the policy, the resource and the counts. An annotation of the pod states these
three, so that the leader can create the template; a forged annotation yields only what the resource itself would have.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import MAX_RESULTS
from admission.api.kubernetes.pods import Stage
from admission.api.muster.claim_policies import Conversion
from admission.api.values import names, quantities
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, DenyReason
from admission.claimpolicy import draft as claimpolicy_draft
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.match import OwnedConversion
from admission.claimpolicy.pods import container_paths
from admission.claimpolicy.pods.container_paths import ContainerPath
from admission.dra.requests.extended_resources import IMPLICIT
from admission.errors import AmountError

FIELDS = ("limits", "requests")

LONGEST_SLUG = 30

_RECIPE = re.compile(r"(?P<policy>[-a-z0-9.]+):(?P<resource>[^=:,\s]+)=(?P<counts>[1-9][0-9]{0,2}(\+[1-9][0-9]{0,2})*)")


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
        return f"{_slug(self.resource)}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSplit:
    """How devices are split. counts: of each request; of_containers: the requests that each container uses."""

    counts: tuple[int, ...]
    of_containers: tuple[tuple[int, ...], ...]


def recipes(annotations: Mapping[str, str]) -> tuple[Recipe, ...]:
    """Return the conversions in a pod's annotation; entries in any other form than Muster's are ignored."""
    text = annotations.get(names.CONVERTED, "")
    found = (_RECIPE.fullmatch(part.strip()) for part in text.split(",") if part.strip())
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
            "name": _request(index),
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


def convert(draft: Draft, conversions: Mapping[str, OwnedConversion]) -> Denial | None:
    """Turn a pod's extended resources into claims. Refuses a resource that exceeds the devices of one claim.

    A resource with an amount that is not a whole number is left to the API server, which refuses it.
    """
    for resource in sorted(conversions):
        needs = _needs(draft, resource)
        if needs is None:
            continue
        device_split = split(needs)
        recipe = Recipe(policy=conversions[resource].policy, resource=resource, counts=device_split.counts)
        if sum(device_split.counts) > MAX_RESULTS:
            return _too_large(recipe)
        _remove(draft, resource)
        if device_split.counts:
            _add_claim(draft, recipe, device_split)
    return None


def is_kept(draft: Draft, recipe: Recipe) -> bool:
    """Return whether a pod still has a claim from the recipe's template, each request of which some container uses."""
    entries = draft.get("spec", "resourceClaims")
    pod_claims = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    made = [one.get("name") for one in pod_claims if one.get("resourceClaimTemplateName") == recipe.template]
    used = {
        (one.get("name"), one.get("request"))
        for container_path in container_paths.container_paths(draft)
        for one in draft.get(*container_path.path, "resources", "claims") or ()
        if isinstance(one, dict)
    }
    requests = [_request(index) for index in range(len(recipe.counts))]
    return any(all((name, request) in used for request in requests) for name in made)


def split(needs: Sequence[tuple[Stage, int]]) -> DeviceSplit:
    """Split devices among containers, which are in the order in which they start. needs: stage and amount of each."""
    long_running = [at for at, (stage, need) in enumerate(needs) if stage is not Stage.INIT and need]
    counts = [needs[at][1] for at in long_running]
    later = {at: [index for index, one in enumerate(long_running) if one > at] for at in range(len(needs))}
    init_only = [at for at, (stage, need) in enumerate(needs) if stage is Stage.INIT and need]
    extra = max((needs[at][1] - sum(counts[index] for index in later[at]) for at in init_only), default=0)
    uses: list[tuple[int, ...]] = [()] * len(needs)
    for index, at in enumerate(long_running):
        uses[at] = (index,)
    for at in init_only:
        need = needs[at][1]
        large_enough = [index for index in later[at] if counts[index] >= need]
        if large_enough:
            uses[at] = (min(large_enough, key=lambda index: (counts[index], index)),)
        else:
            is_short = sum(counts[index] for index in later[at]) < need
            uses[at] = (*later[at], *((len(counts),) if is_short else ()))
    return DeviceSplit(counts=(*counts, *((extra,) if extra > 0 else ())), of_containers=tuple(uses))


def _needs(draft: Draft, resource: str) -> list[tuple[Stage, int]] | None:
    """Return each container's need; None if no container names the resource, or an amount is not a whole number."""
    paths = container_paths.container_paths(draft)
    stated = [_amount(draft, container_path, resource) for container_path in paths]
    if all(amount is None for amount in stated):
        return None
    try:
        amounts = [Fraction(0) if amount is None else quantities.parse(str(amount)) for amount in stated]
    except AmountError:
        return None
    if any(amount < 0 or amount.denominator != 1 for amount in amounts):
        return None
    # The cap exceeds every claim's limit, so a larger amount is refused all the same.
    capped = (min(amount.numerator, quantities.MOST) for amount in amounts)
    return [(container_path.stage, amount) for container_path, amount in zip(paths, capped, strict=True)]


def _amount(draft: Draft, container_path: ContainerPath, resource: str) -> Any:
    """Return the limit, else the request: a lone limit is the request, too, and if both are set they are equal."""
    found = (draft.get(*container_path.path, "resources", field, resource) for field in FIELDS)
    return next((amount for amount in found if amount is not None), None)


def _remove(draft: Draft, resource: str) -> None:
    for container_path in container_paths.container_paths(draft):
        for field in FIELDS:
            amounts = draft.get(*container_path.path, "resources", field)
            if isinstance(amounts, dict) and resource in amounts:
                draft.drop((*container_path.path, "resources", field, resource))


def _add_claim(draft: Draft, recipe: Recipe, device_split: DeviceSplit) -> None:
    name = _free_name(draft, _slug(recipe.resource))
    draft.put(
        ("spec", "resourceClaims", claimpolicy_draft.END), {"name": name, "resourceClaimTemplateName": recipe.template}
    )
    for container_path, uses in zip(container_paths.container_paths(draft), device_split.of_containers, strict=True):
        for index in uses:
            entry = {"name": name, "request": _request(index)}
            draft.put((*container_path.path, "resources", "claims", claimpolicy_draft.END), entry)
    annotation = draft.get("metadata", "annotations", names.CONVERTED)
    draft.put(("metadata", "annotations", names.CONVERTED), f"{annotation},{recipe}" if annotation else str(recipe))


def _free_name(draft: Draft, preferred: str) -> str:
    """Return a name that no claim of the pod has yet."""
    entries = draft.get("spec", "resourceClaims")
    used = {entry.get("name") for entry in entries if isinstance(entry, dict)} if isinstance(entries, list) else set()
    options = (preferred, *(f"{preferred}-{number}" for number in range(2, len(used) + 3)))
    return next(option for option in options if option not in used)


def _request(index: int) -> str:
    return f"devices-{index}"


def _slug(resource: str) -> str:
    """Return the end of a resource's name, the most telling part, with only the characters of a DNS label."""
    text = re.sub("[^a-z0-9]+", "-", resource.removeprefix(IMPLICIT).lower())
    return text.strip("-")[-LONGEST_SLUG:].strip("-") or "devices"


def _too_large(recipe: Recipe) -> Denial:
    count = sum(recipe.counts)
    count_text = f"{quantities.MOST} or more" if count >= quantities.MOST else str(count)
    return Denial(
        DenyReason.CLAIM_TOO_LARGE,
        f"the pod asks for {count_text} {recipe.resource}, which ClaimPolicy {recipe.policy} turns into one claim;"
        f" Kubernetes allocates at most {MAX_RESULTS} devices in one claim; spread them over several pods",
        {"count": count, "limit": MAX_RESULTS, "resource": recipe.resource},
    )
