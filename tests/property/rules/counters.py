"""What devices draw from the counters of their pools."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tests.property.rules import amounts
from tests.property.rules.reading import World
from tests.property.rules.records import Device, Use


def exceeded(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """What devices draw from a pool's counters, in use and new, must be there; a shared device draws once.

    While a pool has a counter that is overdrawn, none of its devices that draw anything can be taken.
    """
    for pool_id, pool in cluster_state.pools.items():
        drawing = _drawing(cluster_state, [use for use in uses if (use.device.driver, use.device.pool) == pool_id])
        if not drawing:
            continue
        left = defaultdict(Fraction, pool.counters)
        in_use = [
            each
            for each in pool.everywhere
            if each.key in cluster_state.taken | cluster_state.with_shares | set(cluster_state.consumed)
        ]
        for device in [*in_use, *drawing]:
            for used in device.obj.get("consumesCounters", ()):
                for name, amount in (used.get("counters") or {}).items():
                    left[used["counterSet"], name] -= amounts.read(amount["value"])
        for (counter_set, name), amount in left.items():
            if amount < 0:
                yield f"counters of pool {'/'.join(pool_id)} exceeded: {counter_set}.{name} by {-amount}"


def _drawing(cluster_state: World, uses: Sequence[Use]) -> list[Device]:
    """List the devices that draw counters for these uses, an administrator's included (kubernetes #140729)."""
    found: list[Device] = []
    drawn_already = set(cluster_state.consumed) | (cluster_state.with_shares if cluster_state.release >= 37 else set())
    for use in uses:
        is_further_share = cluster_state.may_be_shared(use.device) and (
            use.device.key in drawn_already or use.device in found
        )
        if use.device.obj.get("consumesCounters") and not is_further_share:
            found.append(use.device)
    return found
