"""Validation of request policies: the default of a capacity, and the values or range to which requests are rounded."""

from fractions import Fraction

from admission.api.validation import fields
from admission.api.values.decoding import Reader

MOST_VALUES = 10


def validate(reader: Reader, capacity: Fraction | None) -> None:
    """Judge a requestPolicy of a device that allows multiple allocations. capacity: the capacity of the device."""
    default = fields.quantity(reader, "default")
    ranged = "validRange" in reader
    if reader.raw("validValues") and ranged:
        reader.problem("", "has both validValues and validRange, only one of them is allowed")
        return
    if reader.raw("validValues"):
        _values(reader, default, capacity)
    if ranged:
        _range(reader, default, capacity)


def _values(reader: Reader, default: Fraction | None, capacity: Fraction | None) -> None:
    raw = reader.raw("validValues")
    entries = raw if isinstance(raw, list) else []
    values = [_entry(reader, index, value) for index, value in enumerate(entries)]
    fields.sized(reader, "validValues", len(values), MOST_VALUES)
    for index, value in enumerate(values):
        before = values[index - 1] if index else None
        if value is None:
            continue
        if before is not None and value <= before:
            reader.problem(f"validValues[{index}]", "is not larger than the value before it; sort them, each once")
        if capacity is not None and value > capacity:
            reader.problem(f"validValues[{index}]", "is more than the whole capacity")
    if "default" not in reader:
        reader.problem("default", "is required beside validValues")
    elif default is not None and None not in values and default not in values:
        reader.problem("default", "is none of validValues")


def _entry(reader: Reader, index: int, value: object) -> Fraction | None:
    place = f"validValues[{index}]"
    return fields.quantity(reader.element(place, value), "")


def _range(reader: Reader, default: Fraction | None, capacity: Fraction | None) -> None:
    span = reader.child("validRange")
    least, most = fields.quantity(span, "min"), fields.quantity(span, "max")
    if "default" not in reader:
        reader.problem("default", "is required beside validRange")
    if "min" not in span:
        span.problem("min", "is required")
    if least is None:
        return
    if capacity is not None and least > capacity:
        span.problem("min", "is more than the whole capacity")
    if most is not None and most < least:
        span.problem("max", "is less than min")
    if most is not None and capacity is not None and most > capacity:
        span.problem("max", "is more than the whole capacity")
    if default is not None and (default < least or (most is not None and least <= most < default)):
        reader.problem("default", "is outside validRange")
    _step(reader, span, (default, least, most), capacity)


def _step(
    reader: Reader, span: Reader, amounts: tuple[Fraction | None, Fraction, Fraction | None], capacity: Fraction | None
) -> None:
    """Judge the step, and whether default and max can be reached. amounts: default, min and max."""
    default, least, most = amounts
    step = fields.quantity(span, "step")
    if step is None:
        return
    if step == 0:
        span.problem("step", "must be more than 0; leave it out to allow every amount")
        return
    if capacity is not None and least + step > capacity:
        span.problem("step", "is so large that min and one step are more than the whole capacity")
    if not _are_whole(default, least, most, step):
        # A feature gate decides whether fractions are rounded up to whole numbers or counted in thousandths.
        return
    if default is not None and (default - least) % step:
        reader.problem("default", "cannot be reached from validRange.min in steps of validRange.step")
    if most is not None and (most - least) % step:
        span.problem("max", "cannot be reached from min in steps of step")


def _are_whole(*amounts: Fraction | None) -> bool:
    return all(amount is None or amount.denominator == 1 for amount in amounts)
