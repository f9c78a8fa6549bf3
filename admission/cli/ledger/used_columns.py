"""What devices did, as columns of reports: for people, and exact for programs."""

from fractions import Fraction
from typing import Any

from admission.cli.terminal import Number
from admission.ledger.reports import time_series
from admission.ledger.reports.utilization import MICRO, Measured, Utilization

HEADINGS = tuple(map(Number, ("measured-hours", "used-hours", "idle-hours", "used-share", "memory-peak", "energy-kWh")))
CSV = (
    "measured_seconds",
    "used_microseconds",
    "idle_microseconds",
    "memory_peak_bytes",
    "powered_seconds",
    "energy_millijoules",
)

MEMORY_OVER = Number("memory-over")
"""By how much memory in use exceeds what was asked for, where that is compared."""
MEMORY_OVER_CSV = "memory_over_bytes"

MISSING = "-"

_GIBIBYTE = 1 << 30
_KILOWATT_HOUR = 3_600_000_000
"""In millijoules."""


def headings(measured: Measured | None) -> tuple[Number, ...]:
    """Return the headings of a table; none where nothing is to be shown."""
    if measured is None:
        return ()
    return (*HEADINGS, MEMORY_OVER) if measured.compares_memory else HEADINGS


def csv_headings(measured: Measured | None) -> tuple[str, ...]:
    """Return the headings of CSV; none where nothing is to be shown."""
    if measured is None:
        return ()
    return (*CSV, MEMORY_OVER_CSV) if measured.compares_memory else CSV


def cells(did: Utilization, measured: Measured) -> list[str]:
    """Return the cells of a table: hours with four decimals, the share in percent, GiB and kWh."""
    return [
        time_series.decimal(did.measured),
        _hours(did.used),
        _hours(did.idle),
        MISSING if did.used is None else f"{_decimal(Fraction(did.used * 100, did.measured * MICRO), places=1)}%",
        gibibytes(did.memory_peak),
        MISSING if did.energy is None else _decimal(Fraction(did.energy, _KILOWATT_HOUR), places=4),
        *((gibibytes(did.memory_over),) if measured.compares_memory else ()),
    ]


def gibibytes(amount: int | None) -> str:
    """Return an amount of bytes as GiB with two decimals."""
    return MISSING if amount is None else f"{_decimal(Fraction(amount, _GIBIBYTE), places=2)}Gi"


def sentence(did: Utilization) -> str:
    """Return the hours in one cell: `0.625 h used, 0.225 h idle, of 0.85 h measured`."""
    measured = f"{time_series.decimal(did.measured)} h measured"
    return measured if did.used is None else f"{_hours(did.used)} h used, {_hours(did.idle)} h idle, of {measured}"


def amounts(did: Utilization, measured: Measured | None = None) -> list[str]:
    """Return the exact amounts, in the order of CSV; nothing where there is none."""
    return ["" if amount is None else str(amount) for amount in _amounts(did, measured)]


def as_json(did: Utilization, measured: Measured | None = None) -> dict[str, Any]:
    """Return the exact amounts as text, and null where there is none."""
    names = ("measuredSeconds", "usedMicroseconds", "idleMicroseconds", "memoryPeakBytes", "poweredSeconds")
    texts = [None if amount is None else str(amount) for amount in _amounts(did, measured)]
    more = ("memoryOverBytes",) if measured is not None and measured.compares_memory else ()
    return dict(zip((*names, "energyMillijoules", *more), texts, strict=True))


def _amounts(did: Utilization, measured: Measured | None) -> tuple[int | None, ...]:
    more = (did.memory_over,) if measured is not None and measured.compares_memory else ()
    return (did.measured, did.used, did.idle, did.memory_peak, did.powered, did.energy, *more)


def _hours(microseconds: int | None) -> str:
    return MISSING if microseconds is None else _decimal(Fraction(microseconds, 3600 * MICRO), places=4)


def _decimal(value: Fraction, *, places: int) -> str:
    return time_series.format_decimal(round(value * 10**places), places=places)
