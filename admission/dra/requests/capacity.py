"""The capacity that a request consumes of a device, and whether the device's request policy allows it.

Mirrors `consumable_capacity.go` of `k8s.io/dynamic-resource-allocation/structured/internal/incubating` (v0.37.1). Steps
are whole units, as upstream, unless the gate DRAFractionalCapacityRange is on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from admission.api.kubernetes.devices import Capacity, RequestPolicy, ValidRange
from admission.api.values import quantities
from admission.api.values.quantities import INT64
from admission.dra.inventory.counters import Amount, exact
from admission.errors import AmountError

MILLI = 1000

Needs = tuple[tuple[str, Fraction], ...]
"""The requested amount of each capacity, by its name in the slice, in order of names."""


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """An amount that kube-scheduler cannot represent: a fatal error in 1.37, while 1.36 skips the device."""

    message: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """A device that can never serve the request, even when not in use. why: the first reason."""

    why: str


def consumed(
    needs: Needs, capacities: Mapping[str, Capacity], *, fractional: bool
) -> dict[str, Amount] | Unfit | Unrepresentable:
    """Return what a request consumes of every capacity of a device."""
    requested = dict(needs)
    for name in requested:
        if name not in capacities:
            return Unfit(f"it has no capacity {name}")
    amounts: dict[str, Amount] = {}
    for name, capacity in capacities.items():
        amount = _resolved(requested.get(name), capacity, fractional=fractional)
        if isinstance(amount, Unrepresentable):
            return Unrepresentable(f"capacity {name}: {amount.message}")
        if amount < 0:
            return Unrepresentable(f"capacity {name}: {amount} is negative")
        amounts[name] = exact(amount)
    for name, capacity in capacities.items():
        amount, asked = Fraction(amounts[name]), requested.get(name)
        if _violates(amount, capacity.policy, fractional=fractional):
            return Unfit(_violation(name, amount, asked, capacity.policy))
        if amount > capacity.value:
            rounded = _rounding(amount, asked)
            why = f": {written(asked)}, {rounded}" if asked is not None and rounded else ""
            return Unfit(f"capacity {name} is {capacity.text}, less than asked for{why}")
    return amounts


def _violation(name: str, amount: Fraction, asked: Fraction | None, policy: RequestPolicy | None) -> str:
    """Return how an amount violates the policy. asked: what the request says, before it was rounded up."""
    rounded = _rounding(amount, asked)
    start = f"{written(amount if asked is None else asked)} of capacity {name}{f', {rounded},' if rounded else ''}"
    allowed = [*policy.values, *([policy.range.most] if policy.range is not None else [])] if policy is not None else []
    most = max((one for one in allowed if one is not None), default=None)
    if most is None or amount <= most:
        return f"{start} is not what its request policy allows"
    return f"{start} is more than the {written(most)} that its request policy allows"


def _rounding(amount: Fraction, asked: Fraction | None) -> str:
    """Return to what a policy rounds what is asked for; empty if it does not."""
    return "" if asked in {None, amount} else f"rounded up to {written(amount)} by the steps of its request policy"


def _resolved(requested: Fraction | None, capacity: Capacity, *, fractional: bool) -> Fraction | Unrepresentable:
    """Return the amount that a request consumes: the policy's default, or the requested one rounded up by it."""
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.range is not None and policy.range.least is not None:
        return _rounded(requested, policy.range, policy.range.least, fractional=fractional)
    return next((value for value in policy.values if value >= requested), requested)


def _rounded(requested: Fraction, span: ValidRange, least: Fraction, *, fractional: bool) -> Fraction | Unrepresentable:
    if requested < least:
        return least
    if span.step is None:
        return requested
    if fractional and _in_thousandths(span):
        return _stepped(requested, least, span.step, MILLI)
    if requested > INT64:
        return Unrepresentable(f"a request of {_short(requested)} is larger than 2^63-1")
    return _stepped(Fraction(_ceiling(requested)), Fraction(_ceiling(least)), Fraction(_ceiling(span.step)), 1)


def _stepped(requested: Fraction, least: Fraction, step: Fraction, unit: int) -> Fraction | Unrepresentable:
    """Return the first of least, least + step, … that suffices. unit: amounts must be whole multiples of 1/unit."""
    if (requested * unit).denominator != 1:
        return Unrepresentable(f"a request of {_short(requested)} is no whole number of thousandths")
    if step <= 0:
        return Unrepresentable("its request policy has a step that is not above zero")
    found = least + step * _ceiling((requested - least) / step)
    if found * unit > INT64:
        return Unrepresentable(f"a request of {_short(requested)}, rounded up to the next step, is larger than 2^63-1")
    return found


def _violates(amount: Fraction, policy: RequestPolicy | None, *, fractional: bool) -> bool:
    """Return whether an amount violates the policy; the default never does."""
    if policy is None or amount == policy.default:
        return False
    if policy.range is not None:
        return _is_outside(amount, policy.range, fractional=fractional)
    return bool(policy.values) and amount not in policy.values


def _is_outside(amount: Fraction, span: ValidRange, *, fractional: bool) -> bool:
    if span.most is not None and amount > span.most:
        return True
    if span.step is None or span.least is None:
        return False
    if fractional and _in_thousandths(span):
        return (amount - span.least) % span.step != 0
    step = _ceiling(span.step)
    return step <= 0 or (_ceiling(amount) - _ceiling(span.least)) % step != 0


def _in_thousandths(span: ValidRange) -> bool:
    """Return whether every bound is a whole number of thousandths within 64 bits, and the step at least one."""
    bounds = [bound * MILLI for bound in (span.least, span.most, span.step) if bound is not None]
    whole = all(bound.denominator == 1 and abs(bound) <= INT64 for bound in bounds)
    return whole and (span.step is None or span.step * MILLI >= 1)


def _ceiling(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


def _short(amount: Fraction) -> str:
    return str(exact(amount))


def written(amount: Fraction) -> str:
    """Return an amount for messages, as a quantity or, finer than that, as a fraction."""
    try:
        return quantities.write(amount)
    except AmountError:
        return str(amount)
