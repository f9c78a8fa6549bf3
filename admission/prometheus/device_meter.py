"""What devices did, as whole numbers, from the answers of a Prometheus-compatible server: the real DeviceMeter."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from admission.accounting.device_samples import Quantity, Samples
from admission.errors import FixError
from admission.prometheus import device_queries
from admission.prometheus.api_client import ApiClient, Series
from admission.prometheus.device_queries import Queries

log = structlog.get_logger()

MOST_UUIDS = 250
"""Devices in one query, whose text has the UUID of each."""

MOST_POINTS = 50_000
"""Points in one answer, 25 bytes each."""

_SCALE = {Quantity.UTILIZATION: 1_000_000, Quantity.MEMORY: 1, Quantity.POWER: 1000}
_LARGEST = {Quantity.UTILIZATION: 1.0, Quantity.MEMORY: 2.0**63, Quantity.POWER: 1e9}
"""Values beyond it are not what they should be: a percentage, say, where a share is asked for."""

_TOLERANCE = 1.01
"""Exporters may measure a little more than all of a second."""


class PrometheusMeter:
    """The port DeviceMeter. queries: by driver and quantity; of drivers without one nothing is known."""

    def __init__(self, client: ApiClient, queries: Queries, *, step: int) -> None:
        self._client = client
        self._queries = queries
        self._step = step

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Collection[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        """Return the samples of a time, by driver and UUID, with the end of each in Unix seconds.

        Raises RetryError, and FixError if the server refuses a query or its answer is none of devices at these times.
        """
        first = start + timedelta(seconds=self._step)
        asked_at = range(int(first.timestamp()), int(end.timestamp()) + 1, self._step)
        found: dict[tuple[str, str], Samples] = {}
        for driver, uuids in sorted(devices.items()):
            query = self._queries.get((driver, quantity))
            if query is None:
                continue
            for some in _sliced(sorted(uuids), self._most(start, end)):
                asked = device_queries.filled(query, some, self._step)
                for series in await self._client.range(asked, first, end, self._step):
                    key = driver, _uuid(series, driver, quantity)
                    if key in found:
                        raise FixError(f"{_place(driver, quantity)}: there are several series of {key[1]}")
                    found[key] = _samples(series, driver, quantity, asked_at)
        return found

    def _most(self, start: datetime, end: datetime) -> int:
        points = (end - start) // timedelta(seconds=self._step)
        return max(1, min(MOST_UUIDS, MOST_POINTS // max(1, points)))


def _place(driver: str, quantity: Quantity) -> str:
    return f"usage.prometheus.{quantity}: the query for {driver}"


def _uuid(series: Series, driver: str, quantity: Quantity) -> str:
    uuid = series.metric.get("uuid")
    if not uuid:
        raise FixError(f"{_place(driver, quantity)} returns a series without the label uuid: {dict(series.metric)}")
    return uuid


def _samples(series: Series, driver: str, quantity: Quantity, asked_at: range) -> Samples:
    """Return the samples of a series. Those that cannot be are left out, as if they had not been measured.

    Raises FixError for times that were not asked for, or come twice: they would count for longer than they last.
    """
    largest, scale = _LARGEST[quantity], _SCALE[quantity]
    found, seen, wrong = [], set[int](), 0
    for at, text in series.values:
        end = _moment(at)
        if end not in asked_at or end in seen:
            raise _wrong_time(series, _place(driver, quantity), end, asked_at)
        seen.add(end)
        try:
            value = float(text)
        except ValueError as error:
            raise FixError(f"{_place(driver, quantity)} returns {text[:60]!r}, which is no number") from error
        if 0 <= value <= largest * _TOLERANCE:
            found.append((end, round(min(value, largest) * scale)))
        elif not math.isnan(value):  # NaN is how Prometheus writes what is unknown
            wrong += 1
    if wrong:
        log.warning(
            "what a device did is not believed",
            query=_place(driver, quantity),
            uuid=series.metric.get("uuid"),
            samples=wrong,
            fix="a utilization is a share of 0 to 1, memory is in bytes, power in watts",
        )
    return found


def _moment(at: float) -> int:
    """Return a time in whole seconds; -1 for one that is later than any that may be asked for."""
    return round(at) if abs(at) < 1 << 53 else -1


def _wrong_time(series: Series, place: str, end: int, asked_at: range) -> FixError:
    """Return what is wrong with a sample at the end of a step."""
    known = "twice" if end in asked_at else "which was not asked for"
    return FixError(
        f"{place}: the server answers of {series.metric.get('uuid', '')[:60]} at {end}, {known}: it was asked for one"
        f" value every {asked_at.step} seconds from {asked_at.start} to {asked_at.stop - 1}. It, or a proxy before it,"
        " has to keep to start, end and step of query_range"
    )


def _sliced(uuids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in itertools.count(0, size):
        if start >= len(uuids):
            return
        yield uuids[start : start + size]
