"""What devices did, as columns of reports: for people, and exact for programs."""

from fractions import Fraction
from typing import Any

from admission.cli.terminal import Number
from admission.ledger.reports import time_series
from admission.ledger.reports.utilization import MICRO, Utilization

HEADINGS = tuple(map(Number, ("measured-hours", "used-hours", "idle-hours", "used-share", "memory-peak", "energy-kWh")))
CSV = (
    "measured_seconds",
    "used_microseconds",
    "idle_microseconds",
    "memory_peak_bytes",
    "powered_seconds",
    "energy_millijoules",
)

MISSING = "-"

_GIBIBYTE = 1 << 30
_KILOWATT_HOUR = 3_600_000_000
"""In millijoules."""


def cells(did: Utilization) -> list[str]:
    """Return the cells of a table: hours with four decimals, the share in percent, GiB and kWh."""
    return [
        time_series.decimal(did.measured),
        _hours(did.used),
        _hours(did.idle),
        MISSING if did.used is None else f"{_decimal(Fraction(did.used * 100, did.measured * MICRO), places=1)}%",
        MISSING if did.memory_peak is None else f"{_decimal(Fraction(did.memory_peak, _GIBIBYTE), places=2)}Gi",
        MISSING if did.energy is None else _decimal(Fraction(did.energy, _KILOWATT_HOUR), places=4),
    ]


def sentence(did: Utilization) -> str:
    """Return the hours in one cell: `0.625 h used, 0.225 h idle, of 0.85 h measured`."""
    measured = f"{time_series.decimal(did.measured)} h measured"
    return measured if did.used is None else f"{_hours(did.used)} h used, {_hours(did.idle)} h idle, of {measured}"


def amounts(did: Utilization) -> list[str]:
    """Return the exact amounts, in the order of CSV; nothing where there is none."""
    return ["" if amount is None else str(amount) for amount in _amounts(did)]


def as_json(did: Utilization) -> dict[str, Any]:
    """Return the exact amounts as text, and null where there is none."""
    names = ("measuredSeconds", "usedMicroseconds", "idleMicroseconds", "memoryPeakBytes", "poweredSeconds")
    texts = [None if amount is None else str(amount) for amount in _amounts(did)]
    return dict(zip((*names, "energyMillijoules"), texts, strict=True))


def _amounts(did: Utilization) -> tuple[int | None, ...]:
    return did.measured, did.used, did.idle, did.memory_peak, did.powered, did.energy


def _hours(microseconds: int | None) -> str:
    return MISSING if microseconds is None else _decimal(Fraction(microseconds, 3600 * MICRO), places=4)


def _decimal(value: Fraction, *, places: int) -> str:
    return time_series.format_decimal(round(value * 10**places), places=places)
