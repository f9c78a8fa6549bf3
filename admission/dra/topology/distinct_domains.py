"""Whether every part can have a domain of its own: a matching in a bipartite graph, found by augmenting paths."""

from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def exist(choices: Sequence[Collection[Hashable]]) -> bool:
    """Return whether each part can have one of its domains so that no two have the same. choices: of each part."""
    return shortage(choices) is None


def shortage(choices: Sequence[Collection[T]]) -> tuple[list[int], list[T]] | None:
    """Return parts that have too few domains, one less than they are, and all their domains; None if each can have one.

    By Hall's theorem there are such parts whenever the parts cannot have one each.
    """
    owners: dict[T, int] = {}
    for part in range(len(choices)):
        domains = _augment(part, choices, owners)
        if domains is not None:
            return sorted([part, *(owners[domain] for domain in domains)]), domains
    return None


def _augment(part: int, choices: Sequence[Collection[T]], owners: dict[T, int]) -> list[T] | None:
    """Give a part a domain, moving others to other ones if need be; return the domains that it tried in vain.

    None if it has one. Breadth first over alternating paths. Steps: at most the domains of all parts.
    """
    came_from: dict[T, T | None] = dict.fromkeys(choices[part])
    queue = list(came_from)
    for domain in queue:
        owner = owners.get(domain)
        if owner is None:
            _reassign(domain, part, came_from, owners)
            return None
        for other in choices[owner]:
            if other not in came_from:
                came_from[other] = domain
                queue.append(other)
    return queue


def _reassign(free: T, part: int, came_from: dict[T, T | None], owners: dict[T, int]) -> None:
    """Move each owner on the path to a free domain to the next domain; the part gets the first one."""
    domain = free
    while (before := came_from[domain]) is not None:
        owners[domain] = owners[before]
        domain = before
    owners[domain] = part
