"""Conversion of a pod's extended resources to claims, so that pods written for a device plugin work with DRA.

Each resource becomes one claim, with a request for each container that runs to the end of the pod. An init container
that ends before the others start shares their devices, as with a device plugin: the pod needs the sum over its
containers, or the largest need of these init containers if that is more.

The claim is made from the template of a `Recipe`, which an annotation of the pod states.
"""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from admission.api.kubernetes.claims import MAX_RESULTS
from admission.api.kubernetes.pods import Stage
from admission.api.values import names, quantities
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import Work
from admission.claimpolicy import conversion_recipe, draft as claimpolicy_draft
from admission.claimpolicy.conversion_recipe import Recipe
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.match import OwnedConversion
from admission.claimpolicy.pods import container_paths
from admission.claimpolicy.pods.container_paths import ContainerPath
from admission.errors import AmountError

FIELDS = ("limits", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSplit:
    """How devices are split. counts: of each request; of_containers: the requests that each container uses."""

    counts: tuple[int, ...]
    of_containers: tuple[tuple[int, ...], ...]


def convert(draft: Draft, conversions: Mapping[str, OwnedConversion]) -> Denial | None:
    """Turn a pod's extended resources into claims. Refuses a resource that exceeds the devices of one claim.

    A resource with an amount that is not a whole number is left to the API server, which refuses it.
    """
    for resource in sorted(conversions):
        needs = _needs(draft, resource)
        if needs is None:
            continue
        policy, count = conversions[resource].policy, total_devices(needs)
        if count > MAX_RESULTS:
            return _too_large(resource, policy, count)
        device_split = split(needs)
        recipe = Recipe(policy=policy, resource=resource, counts=device_split.counts)
        _remove(draft, resource)
        if device_split.counts:
            _add_claim(draft, recipe, device_split)
    return None


def is_kept(draft: Draft, recipe: Recipe) -> bool:
    """Return whether a pod still has a claim from the recipe's template, each request of which some container uses."""
    paths = container_paths.container_paths(draft)
    draft.work.charge(Work.CONTAINER_RESOURCE, len(paths))
    pod_claims = draft.objects("spec", "resourceClaims")
    made = [one.get("name") for one in pod_claims if one.get("resourceClaimTemplateName") == recipe.template]
    # As text, since what an author writes there may be anything, which the API server refuses.
    used = {
        (str(one.get("name")), str(one.get("request")))
        for container_path in paths
        for one in draft.objects(*container_path.path, "resources", "claims")
    }
    requests = [conversion_recipe.request_name(index) for index in range(len(recipe.counts))]
    return any(all((str(name), request) in used for request in requests) for name in made)


def total_devices(needs: Sequence[tuple[Stage, int]]) -> int:
    """Return the number of devices that the containers need together. needs: as for `split`."""
    running, extra = 0, 0
    for stage, need in reversed(needs):
        if stage is Stage.INIT:
            extra = max(extra, need - running)
        else:
            running += need
    return running + extra


def split(needs: Sequence[tuple[Stage, int]]) -> DeviceSplit:
    """Split devices among containers, which are in the order in which they start. needs: stage and amount of each.

    The work grows with the containers times the devices, which are at most those of one claim.
    """
    long_running = [at for at, (stage, need) in enumerate(needs) if stage is not Stage.INIT and need]
    counts = [needs[at][1] for at in long_running]
    extra = total_devices(needs) - sum(counts)
    uses: list[tuple[int, ...]] = [()] * len(needs)
    for index, at in enumerate(long_running):
        uses[at] = (index,)
    for at, (stage, need) in enumerate(needs):
        if stage is not Stage.INIT or not need:
            continue
        later = range(bisect.bisect_right(long_running, at), len(counts))
        large_enough = [index for index in later if counts[index] >= need]
        if large_enough:
            uses[at] = (min(large_enough, key=lambda index: (counts[index], index)),)
        else:
            is_short = sum(counts[index] for index in later) < need
            uses[at] = (*later, *((len(counts),) if is_short else ()))
    return DeviceSplit(counts=(*counts, *((extra,) if extra else ())), of_containers=tuple(uses))


def _needs(draft: Draft, resource: str) -> list[tuple[Stage, int]] | None:
    """Return each container's need; None if no container names the resource, or an amount is not a whole number."""
    paths = container_paths.container_paths(draft)
    draft.work.charge(Work.CONTAINER_RESOURCE, len(paths))
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
    name = _free_name(draft, conversion_recipe.slug(recipe.resource))
    draft.put(
        ("spec", "resourceClaims", claimpolicy_draft.END), {"name": name, "resourceClaimTemplateName": recipe.template}
    )
    for container_path, uses in zip(container_paths.container_paths(draft), device_split.of_containers, strict=True):
        draft.work.charge(Work.CONTAINER_CLAIM, len(uses))
        for index in uses:
            entry = {"name": name, "request": conversion_recipe.request_name(index)}
            draft.put((*container_path.path, "resources", "claims", claimpolicy_draft.END), entry)
    annotation = draft.get("metadata", "annotations", names.CONVERTED)
    draft.put(("metadata", "annotations", names.CONVERTED), f"{annotation},{recipe}" if annotation else str(recipe))


def _free_name(draft: Draft, preferred: str) -> str:
    """Return a name that no claim of the pod has yet."""
    used = {str(entry.get("name")) for entry in draft.objects("spec", "resourceClaims")}
    options = (preferred, *(f"{preferred}-{number}" for number in range(2, len(used) + 3)))
    return next(option for option in options if option not in used)


def _too_large(resource: str, policy: str, count: int) -> Denial:
    count_text = f"{quantities.MOST} or more" if count >= quantities.MOST else str(count)
    return Denial(
        DenyReason.CLAIM_TOO_LARGE,
        f"the pod asks for {count_text} {resource}, which ClaimPolicy {policy} turns into one claim;"
        f" Kubernetes allocates at most {MAX_RESULTS} devices in one claim; spread them over several pods",
        {"count": count, "limit": MAX_RESULTS, "resource": resource},
    )
