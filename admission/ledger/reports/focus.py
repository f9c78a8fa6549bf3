"""Use as rows of FOCUS, the FinOps Open Cost and Usage Specification, version 1.2 (https://focus.finops.org).

A row is the use of one meter by one claim, or by a pod without a claim, within one charge period, an hour or a day. Its
columns are the specification's mandatory ones, its conditional ones for which Muster has values, and custom ones, named
x_….
With prices, cost = PricingQuantity x price holds exactly, as the specification requires: the quantity is in hours with
12 decimals, and x_ConsumedSeconds has the exact meter-seconds.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.values.names import MeterName
from admission.errors import AmountError
from admission.ledger.journal import encoding
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals, time_series, utilization
from admission.ledger.reports.allocation_intervals import AllocationInterval, Progress
from admission.ledger.reports.utilization import Utilization

VERSION = "1.2"

PLACES = 12
"""Decimals of quantities, in hours."""

_PRICE = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?", re.ASCII)


class Granularity(StrEnum):
    """The length of a charge period."""

    HOUR = "hour"
    DAY = "day"


class Price(NamedTuple):
    """The price of an hour of one base unit of a meter: `units` times 10^-places of the currency."""

    units: int
    places: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How use is charged. prices: a meter without one is free. zone: where days and months begin."""

    granularity: Granularity = Granularity.DAY
    zone: tzinfo = UTC
    currency: str = "USD"
    provider: str = "Muster"
    prices: Mapping[MeterName, Price] = field(default_factory=dict)


Values = dict[str, str | None]
"""The values of columns, in FOCUS's form."""


def price(text: str) -> Price:
    """Parse a price per meter-hour, a decimal such as 2.25. Raises AmountError for other text."""
    found = _PRICE.fullmatch(text)
    if found is None:
        raise AmountError(f"{text[:60]!r} is no price such as 2 or 2.25, of up to 18 digits before and after the point")
    whole, part = found[1], found[2] or ""
    return Price(int(whole + part), len(part))


def columns(terms: Terms) -> tuple[str, ...]:
    """Return the columns in their order. Those of unit prices are included only when there are prices."""
    priced = {name for name in _FOCUS if terms.prices or name not in _OF_PRICES}
    return (*sorted(priced), *_CUSTOM)


async def rows(
    connection: AsyncConnection, cluster: str, window: Window, terms: Terms, progress: Progress
) -> AsyncIterator[tuple[str | None, ...]]:
    """Yield the rows of a time, sorted by charge period, queue, claim and meter.

    The first and the last charge period are cut to the time, so exports of adjacent times add up. Raises FixError when
    the time begins in a closed period.
    """
    after, names = _AFTER[terms.granularity], columns(terms)
    periods = allocation_intervals.by_period(
        connection, cluster, window, lambda moment: after(moment, terms.zone), progress
    )
    async for period, intervals in periods:
        did = await utilization.by_claim(connection, cluster, period)
        for interval in sorted(
            intervals, key=lambda interval_: (interval_.queue, interval_.holding.claim, interval_.sequence)
        ):
            for meter, amount in sorted(interval.holding.charge.items()):
                if amount:
                    values = _row(interval, period, meter, amount * interval.seconds(period), terms)
                    values |= _measured(did.get(interval.holding.claim_uid))
                    yield tuple(values[name] for name in names)


_OF_PRICES = {"ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "SkuPriceId"}
"""Conditional columns of providers that publish unit prices; they may not be null in rows of use."""

_FOCUS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    *_OF_PRICES,
)

_CUSTOM = (
    "x_Cluster",
    "x_ConsumedSeconds",
    "x_DeviceClasses",
    "x_DeviceCount",
    "x_Devices",
    "x_Gang",
    "x_Namespace",
    "x_User",
    "x_MeasuredDeviceSeconds",
    "x_UsedDeviceMicroseconds",
    "x_MemoryPeakBytes",
    "x_EnergyMillijoules",
)


def _row(interval: AllocationInterval, period: Window, meter: MeterName, seconds: int, terms: Terms) -> Values:
    holding = interval.holding
    holder, kind = ("pod", "Pod") if holding.is_of_pod else ("claim", "ResourceClaim")
    return {
        **_costs(meter, time_series.scaled(seconds, places=PLACES), terms),
        **_times(period, terms.zone),
        "BillingAccountId": interval.cluster,
        "BillingAccountName": interval.cluster,
        "ChargeCategory": "Usage",
        "ChargeClass": None,  # no row is a correction of an invoiced period
        "ChargeDescription": f"{meter} used by {holder} {holding.claim} of gang {interval.gang}",
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": terms.provider,
        "ProviderName": terms.provider,
        "PublisherName": terms.provider,
        "ResourceId": holding.claim_uid,
        "ResourceName": holding.claim,
        "ResourceType": kind,
        "ServiceCategory": "Compute",
        "ServiceName": "Kubernetes device allocation",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": meter,
        "SkuMeter": meter,
        "SubAccountId": interval.queue,
        "SubAccountName": interval.queue,
        "SubAccountType": "Queue",
        "x_Cluster": interval.cluster,
        "x_ConsumedSeconds": str(seconds),
        "x_DeviceClasses": encoding.text(holding.devices_by_class) if holding.devices_by_class else None,
        "x_DeviceCount": str(sum(interval.classes.values())),
        "x_Devices": ", ".join("/".join(allocated.device) for allocated in holding.devices) or None,
        "x_Gang": interval.gang,
        "x_Namespace": interval.namespace,
        "x_User": interval.user or None,
    }


def _measured(did: Utilization | None) -> Values:
    """Return what the claim's devices did, as far as it was recorded; the same in the row of each of its meters."""
    amounts = (did.measured, did.used, did.memory_peak, did.energy) if did is not None else (None,) * 4
    return {name: None if amount is None else str(amount) for name, amount in zip(_CUSTOM[-4:], amounts, strict=True)}


def _costs(meter: MeterName, quantity: int, terms: Terms) -> Values:
    price = terms.prices.get(meter, Price(0, 0))
    cost = time_series.format_decimal(quantity * price.units, places=PLACES + price.places)
    amount, unit = time_series.format_decimal(quantity, places=PLACES), f"{meter[:1].upper()}{meter[1:]}-Hours"
    unit_price = time_series.format_decimal(price.units, places=price.places)
    return {
        "BillingCurrency": terms.currency,
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), amount),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), unit),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), unit_price),
        "PricingCategory": "Standard",
        "SkuPriceId": meter,
    }


def _times(period: Window, zone: tzinfo) -> Values:
    month = _month(period.start, zone)
    return {
        "BillingPeriodStart": _utc(month.start),
        "BillingPeriodEnd": _utc(month.end),
        "ChargePeriodStart": _utc(period.start),
        "ChargePeriodEnd": _utc(period.end),
    }


def _month(moment: datetime, zone: tzinfo) -> Window:
    """Return the calendar month that contains a moment."""
    first = moment.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, fold=0)
    next_month = (first + timedelta(days=31)).replace(day=1)
    return Window(first.astimezone(UTC), next_month.astimezone(UTC))


def _after_hour(moment: datetime, zone: tzinfo) -> datetime:
    local = moment.astimezone(zone)
    return moment + timedelta(seconds=3600 - local.minute * 60 - local.second)


def _after_day(moment: datetime, zone: tzinfo) -> datetime:
    """Return the next midnight; a day has 23 or 25 hours when clocks change."""
    local = moment.astimezone(zone).replace(hour=0, minute=0, second=0, fold=0)
    return (local + timedelta(days=1)).astimezone(UTC)


_AFTER: Mapping[Granularity, Callable[[datetime, tzinfo], datetime]] = {
    Granularity.HOUR: _after_hour,
    Granularity.DAY: _after_day,
}


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
