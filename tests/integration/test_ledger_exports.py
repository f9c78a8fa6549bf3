"""Rows for other programs: the same whatever their form, complete, and in FOCUS's columns as its specification asks."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyarrow import parquet

from admission.accounting import measurements
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, MeasuredPage, MeasuredUsage
from admission.api.values import time_zones
from admission.api.values.names import GangUid, MeterName, Uid
from admission.cli.ledger import export_sinks
from admission.ledger.journal.base import Window
from admission.ledger.reports import export, focus, usage_report
from admission.ledger.reports.export import COLUMNS, Row, What
from admission.ledger.reports.focus import Granularity, Price, Terms
from admission.ledger.reports.usage_report import Key
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import AT, CLUSTER, GPU, QUEUE, a_gang, a_grant, minutes
from tests.integration.lives import a_long_life, moments, posted, settled
from tests.integration.test_ledger_reports import MOST, unseen
from tests.property.histories import START, histories

EVER = Window(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
HOUR = Window(AT, minutes(60))

getcontext().prec = 200


async def rows(ledger: SqlLedger, what: What, window: Window, *, cluster: str = CLUSTER) -> list[Row]:
    async with ledger.snapshot() as connection:
        return [row async for row in export.rows(connection, cluster, what, window, unseen)]


async def focused(ledger: SqlLedger, window: Window, terms: Terms, *, cluster: str = CLUSTER) -> list[dict[str, Any]]:
    names = focus.columns(terms)
    async with ledger.snapshot() as connection:
        found = [row async for row in focus.rows(connection, cluster, window, terms, unseen)]
    return [dict(zip(names, row, strict=True)) for row in found]


def written(
    sink: type[export_sinks.Csv | export_sinks.JsonLines | export_sinks.Parquet], what: What, found: Sequence[Row]
) -> bytes:
    stream = io.BytesIO()
    made = sink(COLUMNS[what], stream)
    made.write(found[: len(found) // 2])
    made.write(found[len(found) // 2 :])
    made.close()
    return stream.getvalue()


@pytest.mark.parametrize("what", What)
async def test_every_format_says_the_same(ledger: SqlLedger, what: What) -> None:
    huge = [*a_long_life(), a_gang("huge", gpu=10**30, at=minutes(51))]
    await ledger.post_all([*huge, settled("huge", huge, minutes(52))], epoch=1)
    measured = [did("huge", energy=10**30), did("dark", energy=None)]
    entry = measurements.entry(MeasuredPage(*HOUR, 1, 1), measured, actor="muster")
    await ledger.write_measured(entry, measured, epoch=1)
    found = await rows(ledger, what, HOUR)
    names = [name for name, _ in COLUMNS[what]]

    lines = [json.loads(line) for line in written(export_sinks.JsonLines, what, found).splitlines()]
    comma = list(csv.reader(io.StringIO(written(export_sinks.Csv, what, found).decode(), newline="")))
    table = parquet.read_table(io.BytesIO(written(export_sinks.Parquet, what, found)))

    assert comma[0] == names == table.column_names == list(lines[0])
    assert [tuple(line) for line in comma[1:]] == [_texts(line) for line in lines]
    assert [_texts(line) for line in table.to_pylist()] == [tuple(line) for line in comma[1:]]
    assert any(str(10**30) in value for line in comma for value in line)


def did(gang: str, *, energy: int | None) -> MeasuredUsage:
    """Return what the device of a gang did in the hour."""
    return MeasuredUsage(
        queue=QUEUE,
        gang_uid=GangUid(gang),
        gang=f"ns/{gang}",
        user="",
        claim_uid=Uid(gang),
        claim=f"ns/{gang}",
        start=HOUR.start,
        end=HOUR.end,
        devices=1,
        energy=energy,
    )


def _texts(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(map(_text, line.values()))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)


async def test_entries_and_postings_are_all_that_stands_in_the_books(ledger: SqlLedger) -> None:
    history = a_long_life()
    await ledger.post_all(history, epoch=1)

    entries = await rows(ledger, What.ENTRIES, EVER)
    lines = await rows(ledger, What.POSTINGS, EVER)

    names = [name for name, _ in COLUMNS[What.ENTRIES]]
    told = [dict(zip(names, row, strict=True)) for row in entries]
    assert [(one["key"], one["at"], one["gang"]) for one in told] == [(e.key, e.at, e.gang) for e in history]
    assert [row[1:3] + row[5:10] for row in lines] == [
        (sequence, number, line.queue, line.meter, line.bucket, line.amount, line.claim)
        for sequence, entry in enumerate(history, 1)
        for number, line in enumerate(entry.postings, 1)
    ]


async def test_an_export_has_the_rows_of_its_time(ledger: SqlLedger) -> None:
    await ledger.post_all(a_long_life(), epoch=1)

    found = await rows(ledger, What.ENTRIES, Window(minutes(10), minutes(30)))

    assert [row[1] for row in found] == [3, 4, 5, 6]
    assert await rows(ledger, What.POSTINGS, Window(minutes(51), minutes(60))) == []


async def test_the_usage_export_lists_the_holdings_with_their_times(ledger: SqlLedger) -> None:
    await ledger.post_all(a_long_life(), epoch=1)

    found = await rows(ledger, What.USAGE, Window(minutes(20), minutes(40)))

    names = [name for name, _ in COLUMNS[What.USAGE]]
    first = dict(zip(names, found[0], strict=True))
    assert (first["start"], first["end"], first["seconds"]) == (minutes(20), minutes(40), 1200)
    assert (first["claim"], first["namespace"], first["device_count"]) == ("ns/long-claim-0", "ns", 2)
    assert json.loads(first["classes"]) == {"gpu": 2}
    assert (first["meter"], first["amount"], first["meter_seconds"]) == (GPU, 1, 1200)
    assert [(row[5], row[10]) for row in found] == [("ns/long", 1200), ("ns/late", 540)]


async def test_an_auditor_needs_none_of_our_code(ledger: SqlLedger) -> None:
    """The program in docs/ledger.md finds the balances, and the entry that was changed."""
    history = [*a_long_life(), a_gang('ü\u2028\n\r"\\\x7f\x01', at=minutes(51))]
    await ledger.post_all(history, epoch=1)
    written_ = [
        written(export_sinks.Csv, what, await rows(ledger, what, EVER)).decode() for what in (ENTRIES, POSTINGS)
    ]
    replay = _documented()

    wrong, balances = replay(*(io.StringIO(text, newline="") for text in written_))
    assert wrong is None
    assert {key: amount for key, amount in balances.items() if amount} == dict(Book.replay(history).balances)

    entries, postings = written_
    for altered in (entries.replace("done", "gone"), entries.replace(",settle,", ",adjust,", 1)):
        assert replay(io.StringIO(altered, newline=""), io.StringIO(postings, newline=""))[0] in {3, 6}
    assert replay(io.StringIO(entries, newline=""), io.StringIO(postings.replace(",-8,", ",-9,"), newline=""))[0] == 1


ENTRIES, POSTINGS = What.ENTRIES, What.POSTINGS


def _documented() -> Any:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    names: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)  # noqa: S102 - our own document
    return names["replay"]


# FOCUS.

MANDATORY = {
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity"),
    *("PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
}
"""The mandatory columns of FOCUS 1.2."""

NULLABLE = {
    *("ChargeClass", "x_DeviceClasses", "x_Devices", "x_User"),
    *("x_MeasuredDeviceSeconds", "x_UsedDeviceMicroseconds", "x_MemoryPeakBytes", "x_EnergyMillijoules"),
}
NUMBER = re.compile(r"-?\d+(\.\d+)?")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def check(row: dict[str, Any]) -> None:
    """Hold a row against what FOCUS 1.2 demands of the columns."""
    assert {name for name, value in row.items() if value is None} <= NULLABLE
    assert "" not in row.values()
    for name, value in row.items():
        if name.endswith(("Cost", "Quantity", "UnitPrice")):
            assert NUMBER.fullmatch(value), name
        if name.endswith(("PeriodStart", "PeriodEnd")):
            assert MOMENT.fullmatch(value), name
    assert (row["ChargeCategory"], row["ChargeClass"], row["ChargeFrequency"]) == ("Usage", None, "Usage-Based")
    assert (row["ServiceCategory"], row["ServiceSubcategory"]) == ("Compute", "Other (Compute)")
    assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        assert Decimal(row[cost]) == Decimal(row.get(price, "0")) * Decimal(row["PricingQuantity"])


def test_focus_has_all_mandatory_columns_and_then_custom_ones() -> None:
    names = focus.columns(Terms(prices={GPU: Price(1, 0)}))
    own = [name for name in names if not name.startswith("x_")]

    assert set(own) >= MANDATORY
    assert names[: len(own)] == tuple(sorted(own))
    # Further columns are added at the end.
    assert names[len(own) : -4] == tuple(sorted(names[len(own) : -4]))
    assert set(own) - set(focus.columns(Terms())) == {
        *("ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "SkuPriceId")
    }


async def test_focus_says_what_a_claim_used_and_cost(ledger: SqlLedger) -> None:
    await ledger.post_all(a_long_life(), epoch=1)
    terms = Terms(granularity=Granularity.HOUR, prices={GPU: focus.price("2.25")}, currency="EUR")

    first, second, third = await focused(ledger, Window(minutes(0), minutes(40)), terms)

    for row in (first, second, third):
        check(row)
    assert [row["ResourceName"] for row in (first, second, third)] == [
        *("ns/early-claim-0", "ns/late-claim-0", "ns/long-claim-0")
    ]
    assert (third["ConsumedQuantity"], third["ConsumedUnit"], third["x_ConsumedSeconds"]) == (
        "0.5",
        "Gpu-Hours",
        "1800",
    )
    assert (third["BilledCost"], third["BillingCurrency"], third["SubAccountId"]) == ("1.125", "EUR", QUEUE)
    assert (third["ChargePeriodStart"], third["ChargePeriodEnd"]) == ("2026-03-01T12:00:00Z", "2026-03-01T12:40:00Z")
    assert first["ConsumedQuantity"] == "0.016666666667"
    assert first["BilledCost"] == "0.03750000000075"

    cut = await focused(ledger, Window(minutes(0) + timedelta(seconds=20), minutes(61)), terms)
    assert {(row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in cut} == {
        ("2026-03-01T12:00:20Z", "2026-03-01T13:00:00Z"),
        ("2026-03-01T13:00:00Z", "2026-03-01T13:01:00Z"),
    }


BERLIN = time_zones.find("Europe/Berlin")
KIND = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20
)


@KIND
@given(
    history=histories(),
    times=st.tuples(moments, moments).map(sorted).filter(lambda times: times[0] < times[1]),
    granularity=st.sampled_from(Granularity),
    zone=st.sampled_from(["UTC", "Asia/Kathmandu", "America/St_Johns"]).map(time_zones.find),
)
async def test_focus_sums_to_the_report(
    url: str, history: list[Entry], times: list[datetime], granularity: Granularity, zone: Any
) -> None:
    cluster = await posted(url, history)
    window = Window(*times)
    async with SqlLedger.open(url, cluster) as ledger:
        terms = Terms(granularity=granularity, zone=zone, prices={MeterName("gpu"): Price(1, 3)})
        found = await focused(ledger, window, terms, cluster=cluster)
        async with ledger.snapshot() as connection:
            report = await usage_report.report(connection, [cluster], (Key.QUEUE, Key.GANG), window, unseen)

    due = {(*group, m): a for group, use in report.rows.items() for m, a in use.meters.items() if a}
    sums = Counter[tuple[str, ...]]()
    for row in found:
        check(row)
        sums[row["SubAccountId"], row["x_Gang"], row["SkuMeter"]] += int(row["x_ConsumedSeconds"])
    assert dict(sums) == due


@KIND
@given(history=histories())
async def test_use_sums_to_the_report_and_an_export_can_be_repeated(url: str, history: list[Entry]) -> None:
    cluster = await posted(url, history)
    async with SqlLedger.open(url, cluster) as ledger:
        found = await rows(ledger, What.USAGE, Window(START, MOST), cluster=cluster)
        assert found == await rows(ledger, What.USAGE, Window(START, MOST), cluster=cluster)
        async with ledger.snapshot() as connection:
            report = await usage_report.report(connection, [cluster], (Key.QUEUE,), Window(START, MOST), unseen)

    sums = Counter[str]()
    for row in found:
        if row[14] is not None:
            sums[row[14]] += row[16]
    assert dict(sums) == {meter: amount for meter, amount in report.total.meters.items() if meter in sums}


DAYS = {
    "clocks go forward, a day of 23 hours": (datetime(2026, 3, 28, 23, tzinfo=UTC), 23, "2026-03-31T22:00:00Z"),
    "clocks go back, a day of 25 hours": (datetime(2026, 10, 24, 22, tzinfo=UTC), 25, "2026-10-31T23:00:00Z"),
    "a day as others": (datetime(2026, 6, 29, 22, tzinfo=UTC), 24, "2026-06-30T22:00:00Z"),
}


@pytest.mark.parametrize(("midnight", "hours", "month"), DAYS.values(), ids=DAYS)
async def test_days_and_months_are_those_of_the_time_zone(
    ledger: SqlLedger, midnight: datetime, hours: int, month: str
) -> None:
    assert BERLIN is not None
    history = [a_grant(at=midnight), a_gang("long", at=midnight)]
    history.append(settled("long", history, midnight))
    await ledger.post_all(history, epoch=1)

    window = Window(midnight, midnight + timedelta(hours=hours + 10))
    day, rest = await focused(ledger, window, Terms(zone=BERLIN))
    by_hour = await focused(ledger, window, Terms(zone=BERLIN, granularity=Granularity.HOUR))

    assert (day["ConsumedQuantity"], rest["ConsumedQuantity"]) == (str(hours), "10")
    assert day["BillingPeriodEnd"] == month
    assert [row["ConsumedQuantity"] for row in by_hour] == ["1"] * (hours + 10)
