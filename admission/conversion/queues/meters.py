"""Meters for the resources that other systems limit, and their amounts in the units of these Meters."""

import re
from collections.abc import Sequence
from typing import Any

from admission.api.values import quantities
from admission.conversion.equivalents import Object
from admission.conversion.queues import fields

CPU = "cpu"


def for_devices(resource: str, device_classes: Sequence[str], *, capacity: str = "") -> Object:
    """Return a Meter of devices of some classes, or of what is consumed of a capacity of theirs."""
    counted: Object = {"capacity": {"name": capacity}} if capacity else {"count": {}}
    source = {"deviceClasses": [*device_classes], **counted}
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "sources": [source]})


def for_claims(resource: str, device_classes: Sequence[str]) -> Object:
    """Return a Meter of claims for devices of some classes."""
    source = {"deviceClasses": [*device_classes], "claims": {}}
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "sources": [source]})


def for_node_resource(resource: str) -> Object:
    """Return a Meter of what pods request of nodes."""
    counted = {"name": resource, **({"per": "1m"} if resource == CPU else {})}
    return fields.new_object("Meter", meter_name(resource), {"unit": _unit(resource), "resources": [counted]})


def meter_name(resource: str) -> str:
    """Return the name of a resource's Meter."""
    return re.sub("[^a-z0-9.-]+", "-", resource.lower()).strip("-.")


def quota_amount(value: Any, resource: str) -> int:
    """Return a quota in the unit of its Meter, rounded up: cores are counted in thousandths. Raises AmountError."""
    exact = quantities.parse(str(value)) * (1000 if resource == CPU else 1)
    return -(-exact.numerator // exact.denominator)


def _unit(resource: str) -> str:
    return "thousandths of a core" if resource == CPU else resource.rpartition("/")[2][:32]
