"""The rules of nominal quota, borrowing and lending, as arithmetic on the amounts of one queue and one meter.

They are those of Kueue's `pkg/cache/scheduler/resource_node.go` (2026), for a tree of any depth:

- *subtree* is a queue's nominal quota plus what its children do not keep for themselves;
- *kept* is what a lending limit keeps from the parent;
- *usage* is what the queue itself uses plus what its children use beyond what they keep.

Usage may exceed the quota, as after a quota was lowered: then what the parent has available is negative, and what the
queue keeps and does not use is offset against it. `headroom` applies the rules to a whole tree. All amounts are in the
meter's base unit; a limit of None is unlimited.
"""


def guaranteed(*, subtree: int, lending_limit: int | None) -> int:
    """Return max(0, subtree - lendingLimit), 0 without a limit (`localQuota`)."""
    return 0 if lending_limit is None else max(0, subtree - lending_limit)


def passed_up(*, usage: int, guaranteed: int) -> int:
    """Return what of a queue's usage counts against its parent: max(0, usage - kept) (`accumulateFromChild`)."""
    return max(0, usage - guaranteed)


def allowance(*, subtree: int, guaranteed: int, usage: int, borrowing_limit: int) -> int:
    """Return the most that a queue may take from its parent under its borrowing limit (`withMaxFromParent`).

    What it offers its parent, less what it has passed up, plus the limit: (subtree - kept) - max(0, usage - kept) +
    borrowingLimit.
    """
    return subtree - guaranteed - max(0, usage - guaranteed) + borrowing_limit


def available(*, above: int, guaranteed: int, usage: int) -> int:
    """Return max(0, kept - usage) + above, what a queue may still take if it may take `above` from its parent.

    above: what the parent has available, at most the allowance (`available`). A root has subtree - usage available.
    """
    return max(0, guaranteed - usage) + above


def beside_kept(*, available: int, offered: int, left: int) -> int:
    """Return what is available where queues beside keep quota for gangs of theirs.

    offered: what the taker offers its parent of its own and has not passed up yet. So much it may take in any case.
    left: what is available if what is kept is counted as used; who takes more than its own may take no more than that.
    """
    return max(min(available, offered), left)


def potential(*, above: int, subtree: int, guaranteed: int, borrowing_limit: int | None) -> int:
    """Return what a queue could take if nothing were used and its parent could take `above`.

    min(kept + above, subtree + borrowingLimit) (`potentialAvailable`). A root could take its subtree.
    """
    most = guaranteed + above
    return most if borrowing_limit is None else min(most, subtree + borrowing_limit)


def borrowed(*, subtree: int, usage: int) -> int:
    """Return max(0, usage - subtree), the usage under a queue beyond its own quota (Kueue's `Borrowing`)."""
    return max(0, usage - subtree)


def idle(*, subtree: int, guaranteed: int, usage: int) -> int:
    """Return what a queue offers its parent and does not use: max(0, subtree - max(kept, usage))."""
    return max(0, subtree - max(guaranteed, usage))


def lent(*, idle: int, loans: int, pool: int) -> int:
    """Return how much of a queue's idle quota other queues under the same parent use. Kueue does not define it.

    loans: what these have borrowed. pool: what can be borrowed, the parent's own quota plus the idle quota of all its
    children. Each lender bears a part in proportion to its idle quota, rounded up, so that no loan is invisible:
    min(idle, ⌈loans x idle / pool⌉).
    """
    return min(idle, -(-loans * idle // pool)) if pool else 0


def is_lent_in_part(*, idle: int, loans: int, pool: int) -> bool:
    """Return whether `lent` is rounded up, since several lenders bear a loan that does not divide among them."""
    return loans < pool and loans * idle % pool != 0
