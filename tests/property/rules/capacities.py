"""What requests consume of the capacity of their devices."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tests.property.rules import amounts
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, DeviceKey, Json, Use


def exceeded(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """Every request must fit into its device, a shared one's together with all others' shares."""
    if not cluster_state.features["ConsumableCapacity"]:
        return
    shares: defaultdict[tuple[DeviceKey, str], Fraction] = defaultdict(Fraction)
    for use in uses:
        if refused := refusal(use.ask, use.device):
            yield f"{use.ask.name}: {use.device}: {refused}"
            continue
        for name, capacity in use.device.obj.get("capacity", {}).items():
            amount = consumption(use.ask, name, capacity)
            total = cluster_state.consumed.get(use.device.key, {}).get(name, Fraction()) + amount
            if cluster_state.may_be_shared(use.device):
                shares[use.device.key, name] += amount
                total += shares[use.device.key, name] - amount
            if total > amounts.read(capacity["value"]):
                yield f"{use.ask.name}: {use.device} has {capacity['value']} {name}, {float(total)} would be used"


def refusal(ask: Ask, device: Device) -> str:
    """Say why the device cannot be asked for such amounts; empty if it can."""
    capacities = device.obj.get("capacity", {})
    if unknown := set((ask.spec.get("capacity") or {}).get("requests") or ()) - set(capacities):
        return f"has no capacity {sorted(unknown)}"
    for name, capacity in capacities.items():
        policy, amount = capacity.get("requestPolicy") or {}, consumption(ask, name, capacity)
        valid, values_allowed = policy.get("validRange"), policy.get("validValues")
        if policy.get("default") is not None and amount == amounts.read(policy["default"]):
            continue
        if valid is not None:
            if valid.get("max") is not None and amount > amounts.read(valid["max"]):
                return f"{float(amount)} {name} is more than a request may have"
            step = valid.get("step")
            if step is not None and (amounts.whole(amount) - amounts.whole(valid["min"])) % amounts.whole(step):
                return f"{float(amount)} {name} is between two steps"
        elif values_allowed and amount not in map(amounts.read, values_allowed):
            return f"{float(amount)} {name} is no value that a request may have"
    return ""


def consumption(ask: Ask, name: str, capacity: Json) -> Fraction:
    """Return how much of a device's capacity the request consumes: what it asks for, rounded up as the device says."""
    policy = capacity.get("requestPolicy") or {}
    requested = ((ask.spec.get("capacity") or {}).get("requests") or {}).get(name)
    if requested is None:
        return amounts.read(policy["default"] if policy.get("default") is not None else capacity["value"])
    amount, valid = amounts.read(requested), policy.get("validRange") or {}
    if valid.get("min") is not None:
        least = amounts.read(valid["min"])
        if amount < least or valid.get("step") is None:
            return max(amount, least)
        step = amounts.whole(valid["step"])
        return Fraction(amounts.whole(least) + step * -((amounts.whole(least) - amounts.whole(amount)) // step))
    larger = [value for value in map(amounts.read, policy.get("validValues") or ()) if value >= amount]
    return larger[0] if larger else amount
