"""Meters for the resources that other systems limit, and their amounts in the units of these Meters."""

import re
from collections.abc import Sequence
from typing import Any

from admission.api.values import quantities
from admission.conversion.equivalents import Object
from admission.conversion.queues import fields
from admission.errors import AmountError

CPU = "cpu"
PODS = "pods"
MOST_FACTOR = 1_000_000
_KNOWN = re.compile("(cpu|memory|ephemeral-storage|pods|hugepages-.*)$")


def for_devices(resource: str, device_classes: Sequence[str], *, capacity: str = "") -> Object:
    """Return a Meter of devices of some classes, or of what is consumed of a capacity of theirs."""
    counted: Object = {"capacity": {"name": capacity}} if capacity else {"count": {}}
    source = {"deviceClasses": [*device_classes], **counted}
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "sources": [source]})


def for_claims(resource: str, device_classes: Sequence[str]) -> Object:
    """Return a Meter of claims for devices of some classes."""
    source = {"deviceClasses": [*device_classes], "claims": {}}
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "sources": [source]})


def for_node_resource(resource: str, others: Sequence[Object] = ()) -> Object:
    """Return a Meter of what pods request of nodes. others: what counts besides, as `charged` says it."""
    counted = {"name": resource, **({"per": "1m"} if resource == CPU else {})}
    # Nobody can request a name without a domain that Kubernetes does not know.
    own = [] if others and "/" not in resource and not _KNOWN.match(resource) else [counted]
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "resources": [*own, *others]})


def charged(resource: str, output: str, amount: Any) -> Object:
    """Return that each unit of a resource costs an amount of an output, as an entry of `spec.resources` of its Meter.

    Raises AmountError, also for amounts for which a Meter has no numbers.
    """
    exact = quantities.parse(str(amount)) * (1000 if output == CPU else 1)
    if exact <= 0 or exact.numerator > MOST_FACTOR:
        raise AmountError(f"{amount} of it for each {resource} is no price of a Meter, which is up to {MOST_FACTOR}")
    per = {} if exact.denominator == 1 else {"per": str(exact.denominator)}
    return {"name": resource, **per, **({} if exact.numerator == 1 else {"factor": exact.numerator})}


def meter_name(resource: str) -> str:
    """Return the name of a resource's Meter."""
    return re.sub("[^a-z0-9.-]+", "-", resource.lower()).strip("-.")


def quota_amount(value: Any, resource: str) -> int:
    """Return a quota in the unit of its Meter, rounded up: cores are counted in thousandths. Raises AmountError."""
    exact = quantities.parse(str(value)) * (1000 if resource == CPU else 1)
    return -(-exact.numerator // exact.denominator)


def _unit(resource: str) -> str:
    return "thousandths of a core" if resource == CPU else resource.rpartition("/")[2][:32]
