"""The rules of nominal quota, borrowing and lending, as arithmetic on the amounts of one queue and one meter.

They are those of Kueue's `pkg/cache/scheduler/resource_node.go` (2026), for a tree of any depth:

- *subtree* is a queue's nominal quota plus what its children do not keep for themselves;
- *kept* is what a lending limit holds back from the parent;
- *usage* is what the queue itself uses plus what its children use beyond what they keep.

What is used may exceed what there is, as after a quota was lowered: then what is available is negative, and what a
queue does not use of what it keeps makes up for it as far as it reaches. `headroom` applies the rules to a whole tree.
All amounts are in the meter's base unit; a limit of None is unlimited.
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
    """Return max(0, kept - usage) + above, what a queue may still take where it may take `above` from its parent.

    above: what the parent has available, at most the allowance (`available`). Of a root it is subtree - usage.
    """
    return max(0, guaranteed - usage) + above


def potential(*, above: int, subtree: int, guaranteed: int, borrowing_limit: int | None) -> int:
    """Return what a queue could take if nobody used anything, where its parent could take `above`.

    min(kept + above, subtree + borrowingLimit) (`potentialAvailable`). Of a root it is its subtree.
    """
    most = guaranteed + above
    return most if borrowing_limit is None else min(most, subtree + borrowing_limit)


def borrowed(*, subtree: int, usage: int) -> int:
    """Return max(0, usage - subtree), what is used under a queue beyond its own quota (Kueue's `Borrowing`)."""
    return max(0, usage - subtree)


def idle(*, subtree: int, guaranteed: int, usage: int) -> int:
    """Return what a queue offers its parent and does not use itself: max(0, subtree - max(kept, usage))."""
    return max(0, subtree - max(guaranteed, usage))


def lent(*, idle: int, loans: int, pool: int) -> int:
    """Return how much of what a queue has idle the others under the same parent use. Ours: Kueue does not say.

    loans: what those have borrowed; pool: what there was to borrow, the parent's own quota and what all of its children
    have idle. Each lender bears a part in proportion to what it has idle, rounded up, so that a loan is never
    invisible: min(idle, ⌈loans x idle / pool⌉).
    """
    return min(idle, -(-loans * idle // pool)) if pool else 0
