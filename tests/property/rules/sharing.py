"""Who may have a device beside others, and how many devices a claim may have."""

from collections.abc import Iterator, Sequence

from tests.property.rules.reading import World
from tests.property.rules.records import Use

LONGEST_RESULT = 32
"""Devices in one claim's allocation."""


def used_twice(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """A device belongs to one request; an administrator may look at one that others have, but not twice in a claim.

    Kubernetes serves claims in order and lets nobody but administrators use what an earlier claim took, even where
    that was an administrator.
    """
    for at, use in enumerate(uses):
        for before in uses[:at]:
            if use.device is not before.device:
                continue
            if use.ask.name == before.ask.name and use.ask.claim == before.ask.claim:
                yield f"{use.ask.name}: {use.device} twice"
            elif not cluster_state.may_be_shared(use.device) and (
                not use.ask.is_admin or use.ask.claim == before.ask.claim
            ):
                yield f"{use.ask.name}: {use.device} is given to {before.ask.name} of claim {before.ask.claim}, too"


def too_long(_cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    for claim in {use.ask.claim for use in uses}:
        if (length := sum(use.ask.claim == claim for use in uses)) > LONGEST_RESULT:
            yield f"claim {claim} has {length} results, more than {LONGEST_RESULT}"
