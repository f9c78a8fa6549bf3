"""Whether every part can have a domain of its own: a matching in a bipartite graph, found by augmenting paths."""

from collections.abc import Collection, Hashable, Sequence


def exist(choices: Sequence[Collection[Hashable]]) -> bool:
    """Return whether each part can have one of its domains so that no two have the same. choices: of each part."""
    owners: dict[Hashable, int] = {}
    return all(_augment(part, choices, owners) for part in range(len(choices)))


def _augment(part: int, choices: Sequence[Collection[Hashable]], owners: dict[Hashable, int]) -> bool:
    """Give a part a domain, moving others to other ones if need be; return whether that is possible.

    Breadth first over alternating paths. Steps: at most the domains of all parts.
    """
    came_from: dict[Hashable, Hashable | None] = dict.fromkeys(choices[part])
    queue = list(came_from)
    for domain in queue:
        owner = owners.get(domain)
        if owner is None:
            _reassign(domain, part, came_from, owners)
            return True
        for other in choices[owner]:
            if other not in came_from:
                came_from[other] = domain
                queue.append(other)
    return False


def _reassign(
    free: Hashable, part: int, came_from: dict[Hashable, Hashable | None], owners: dict[Hashable, int]
) -> None:
    """Move each owner on the path to a free domain to the next domain; the part gets the first one."""
    domain = free
    while (before := came_from[domain]) is not None:
        owners[domain] = owners[before]
        domain = before
    owners[domain] = part
