"""The commands on the books: what they print, and what they say of bad input."""

import asyncio
import csv
import io
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from pyarrow import parquet

from admission.cli.ledger import options
from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers
from tests.integration.lives import a_long_life, without_claims
from tests.unit.cli.conftest import Ended, Muster

DAY = ("--from", "2026-03-01", "--to", "2026-03-02")


@pytest.fixture
def database(tmp_path: Path) -> tuple[str, ...]:
    """A ledger with the books of two clusters, as options."""
    url = asyncio.run(_filled(tmp_path))
    return ("--database", url, "--cluster", "east")


async def _filled(folder: Path) -> str:
    url = ledgers.a_sqlite_ledger(folder)
    for cluster in ("east", "west"):
        async with SqlLedger.open(url, cluster) as ledger:
            await ledger.post_all(a_long_life(), epoch=1)
    return url


def test_a_statement_begins_with_the_opening_and_ends_with_the_closing_balance(
    muster: Muster, database: tuple[str, ...]
) -> None:
    done = muster("ledger", "statement", "team-a", "--from", "2026-03-01T12:10", "--to", "2026-03-01T12:30", *database)

    lines = [line.split() for line in done.stdout.splitlines()[2:] if line]
    assert [line[3] for line in lines] == ["opening", "settle", "reserve", "settle", "release", "closing"]
    assert lines[0][:2] == ["2026-03-01", "12:10:00"]
    assert " ".join(lines[-1][-4:]) == "1 of 8 taken"


def test_the_json_of_a_statement_has_the_documented_fields(muster: Muster, database: tuple[str, ...]) -> None:
    answer = json.loads(muster("ledger", "statement", "team-a", *DAY, "--format", "json", *database).stdout)

    assert list(answer) == ["cluster", "queue", "start", "end", "opening", "lines", "closing", "measured"]
    assert list(answer["lines"][0]) == [
        *(
            "at",
            "sequence",
            "kind",
            "queue",
            "gang",
            "onBehalfOf",
            "user",
            "actor",
            "reason",
            "meter",
            "change",
            "balance",
        )
    ]
    amounts = {"nominal": "8", "reserved": "0", "used": "1", "spent": "0"}
    assert answer["closing"] == [{"queue": "team-a", "meter": "gpu", "balance": amounts}]


def test_times_are_read_and_shown_in_the_time_zone(muster: Muster, database: tuple[str, ...]) -> None:
    zone = ("--time-zone", "Asia/Kathmandu")
    done = muster("ledger", "statement", "--from", "2026-03-01T17:55", "--to", "2026-03-01T17:56", *zone, *database)

    assert "2026-03-01 17:55:00" in done.stdout
    assert "settle" in done.stdout


def test_a_report_is_a_table_with_a_total(muster: Muster, database: tuple[str, ...]) -> None:
    done = muster("ledger", "report", "--by", "queue,gang", *DAY, "--to", "2026-03-01T13:00", *database)

    assert done.returncode == 0
    title, *lines = done.stdout.splitlines()
    assert title == "Use from 2026-03-01 00:00:00 to 2026-03-01 13:00:00 UTC"
    assert [line.split() for line in lines if line] == [
        ["QUEUE", "GANG", "DEVICE-HOURS", "GPU-HOURS"],
        ["team-a", "ns/early", "0.0333", "0.0167"],
        ["team-a", "ns/late", "0.9667", "0.4833"],
        ["team-a", "ns/long", "1.3333", "0.6667"],
        ["total", "-", "2.3333", "1.1667"],
    ]


def test_pods_without_claims_are_in_reports_and_statements_as_their_meter_counts_them(
    muster: Muster, tmp_path: Path
) -> None:
    url = ledgers.a_sqlite_ledger(tmp_path)

    async def fill() -> None:
        async with SqlLedger.open(url, "east") as ledger:
            await ledger.post_all(await without_claims(), epoch=1)

    asyncio.run(fill())
    words = ("--from", "2026-11-21T12:01", "--to", "2026-11-21T13:40", "--database", url, "--cluster", "east")
    reported, stated = muster("ledger", "report", *words), muster("ledger", "statement", "q", *words)

    assert [line.split() for line in reported.stdout.splitlines()[1:] if line] == [
        ["QUEUE", "DEVICE-HOURS", "CREDITS-HOURS"],
        ["q", "0", "10"],
        ["total", "0", "10"],
    ]
    moved = [line for line in stated.stdout.splitlines() if " credits " in line]
    assert [re.split(r" {2,}", line)[-1].strip() for line in moved] == [
        "8 of 40 taken",
        "8 of 40 taken",
        "8 of 40 taken, 6.6667 h spent",
        "4 of 40 taken, 6.6667 h spent",
        "4 of 40 taken, 6.6667 h spent",
    ]


def test_the_json_of_a_report_has_the_documented_fields(muster: Muster, database: tuple[str, ...]) -> None:
    words = ("--by", "namespace", "--from", "2026-03-01T12:20", "--to", "2026-03-01T12:30", "--format", "json")
    answer = json.loads(muster("ledger", "report", *words, "--all-clusters", *database[:2]).stdout)

    use = {"deviceSeconds": "1200", "deviceHours": "0.3333", "meters": {"gpu": {"seconds": "600", "hours": "0.1667"}}}
    total = {
        "deviceSeconds": "2400",
        "deviceHours": "0.6667",
        "meters": {"gpu": {"seconds": "1200", "hours": "0.3333"}},
    }
    assert answer == {
        "start": "2026-03-01T12:20:00Z",
        "end": "2026-03-01T12:30:00Z",
        "by": ["cluster", "namespace"],
        "rows": [{"cluster": cluster, "namespace": "ns", **use} for cluster in ("east", "west")],
        "total": total,
    }


def test_a_report_by_class_as_csv_has_no_meters(muster: Muster, database: tuple[str, ...]) -> None:
    words = ("--by", "class,user", "--from", "2026-03-01T12:20", "--to", "2026-03-01T12:30", "--format", "csv")

    assert muster("ledger", "report", *words, *database).stdout == (
        "class,user,device_seconds,device_hours\ngpu,unknown,1200,0.3333\n"
    )


def test_running_gangs_count_up_to_now_in_a_report(
    muster: Muster, database: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003
            return ledgers.minutes(60)

    monkeypatch.setattr(options, "datetime", Clock)
    words = ("--by", "gang", "--from", "2026-03-01T12:50", "--to", "2030-01-01", "--format", "json")
    answer = json.loads(muster("ledger", "report", *words, *database).stdout)

    assert answer["end"] == "2026-03-01T13:00:00Z"
    assert [(row["gang"], row["deviceSeconds"]) for row in answer["rows"]] == [("ns/late", "1200")]


def test_an_export_replaces_a_file_when_it_is_complete(
    muster: Muster, database: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "entries.csv"
    file.write_text("before")
    done = muster("ledger", "export", *DAY, "--output", str(file), *database)

    assert done == Ended(0, "", "")
    lines = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [line["sequence"] for line in lines] == [str(number) for number in range(1, 10)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".entries")] == []


def test_an_export_that_fails_leaves_the_file_as_it_was(
    muster: Muster, database: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "entries.csv"
    file.write_text("before")
    ledgers.tamper(database[1], "UPDATE transactions SET closes = '{' WHERE sequence = 6")
    done = muster("ledger", "export", "--what", "usage", *DAY, "--output", str(file), *database)

    assert done.returncode == 1
    assert "transaction 6 of cluster east cannot be read" in done.stderr
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".entries")] == []


def test_an_output_that_fails_is_not_called_a_failing_database(muster: Muster, database: tuple[str, ...]) -> None:
    done = muster("ledger", "export", *DAY, "--output", "/dev/full/x", *database)

    assert done.returncode == 2
    assert "--output: /dev/full/x cannot be written: Not a directory" in done.stderr


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
def test_an_export_to_a_full_disk_reports_the_full_disk(format_: str, database: tuple[str, ...]) -> None:
    """In a process of its own, whose standard output is a device that is always full."""
    words = [sys.executable, "-c", "from admission import cli; cli.main()", "ledger", "export", "--format", format_]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*words, *DAY, *database], stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("error: --output: the standard output cannot be written: No space left on device")


def test_a_reader_that_has_gone_ends_the_export_without_a_word(database: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", "from admission import cli; cli.main()", "ledger", "export", *DAY, *database]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(words, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")


def test_parquet_keeps_amounts_exactly(muster: Muster, database: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "postings.parquet"
    words = ("--format", "parquet", "--what", "postings", "--output", str(file))

    assert muster("ledger", "export", *words, *DAY, *database) == Ended(0, "", "")
    table = parquet.read_table(file)
    assert str(table.schema.field("amount").type) == "decimal128(38, 0)"
    assert sum(table["amount"].to_pylist()) == 0


def test_parquet_without_its_package_says_what_to_install(
    muster: Muster, database: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "x.parquet"
    done = muster("ledger", "export", "--format", "parquet", "--output", str(file), *DAY, *database)

    assert done.returncode == 2
    assert "uv tool install '.[parquet]'" in done.stderr
    assert not file.exists()


def test_focus_comes_with_prices(muster: Muster, database: tuple[str, ...]) -> None:
    words = ("--format", "focus", "--price", "gpu=3", "--currency", "EUR", "--provider", "Example Lab")
    done = muster("ledger", "export", *words, "--from", "2026-03-01T12:00", "--to", "2026-03-01T12:50", *database)

    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {line["ResourceName"]: line["BilledCost"] for line in lines} == {
        "ns/early-claim-0": "0.050000000001",
        "ns/late-claim-0": "0.950000000001",
        "ns/long-claim-0": "2.000000000001",
    }
    assert {line["ProviderName"] for line in lines} == {"Example Lab"}


BAD = {
    "an end before the start": (
        ["statement", "--from", "2026-03-02", "--to", "2026-03-01"],
        "--from 2026-03-02 is not before --to 2026-03-01",
    ),
    "an end at the start": (["report", "--from", "2026-03-01", "--to", "2026-03-01"], "a period ends after it starts"),
    "a start that has not come": (["report", "--from", "9998-01-01", "--to", "9999-01-01"], "has not come yet"),
    "no time": (["export", "--from", "soon"], "--from: 'soon' is no date or time such as 2026-01-31"),
    "a time before all time": (
        ["report", "--from", "0001-01-01", "--time-zone", "Asia/Kathmandu"],
        "--from: '0001-01-01' is no date or time",
    ),
    "an end without thirty days before it": (["report", "--to", "0001-01-02"], "--to: '0001-01-02' has no 30 days"),
    "a zone misspelt": (
        ["report", "--time-zone", "Europe/Berln"],
        "--time-zone: there is no time zone 'Europe/Berln'; did you mean Europe/Berlin or",
    ),
    "a zone that is a path": (["statement", "--time-zone", "../../etc/passwd"], "use an IANA name such as"),
    "a queue that has no account": (
        ["statement", "team-z"],
        "QUEUE: 'team-z' has no account in the books of cluster east; those that have one are team-a",
    ),
    "a cluster without books": (
        ["report", "--cluster", "north"],
        "--cluster: the ledger has no books of cluster 'north'; it has those of east, west",
    ),
    "a key that is none": (
        ["report", "--by", "queue,pod"],
        "--by: there is no 'pod' to group by; use one or more of queue,namespace,user,class,gang",
    ),
    "a key named twice": (["report", "--by", "queue,queue"], "--by: names queue twice"),
    "no key": (["report", "--by", ""], "--by: there is no '' to group by"),
    "a meter that nobody counts": (
        ["report", "--meter", "tpu"],
        "--meter: the books know no meter 'tpu'; there are gpu",
    ),
    "a price that is none": (["export", "--format", "focus", "--price", "gpu=dear"], "--price gpu: 'dear' is no price"),
    "a price of nothing": (["export", "--format", "focus", "--price", "2"], "--price: '2' is not METER=PRICE"),
    "a price below nothing": (["export", "--format", "focus", "--price", "gpu=-1"], "--price gpu: '-1' is no price"),
    "two prices": (["export", "--format", "focus", "--price", "a=1", "--price", "a=2"], "--price: names a twice"),
    "a currency that is none": (["export", "--format", "focus", "--currency", "Euro"], "--currency: 'Euro' is no code"),
    "a price without focus": (["export", "--price", "gpu=1"], "--price: belongs to --format focus, not to csv"),
    "rows for focus": (["export", "--format", "focus", "--what", "usage"], "--what usage: focus has rows of its own"),
    "a folder that is not there": (
        ["export", "--output", "/nowhere/x.csv"],
        "--output: /nowhere/x.csv cannot be written: No such file or directory",
    ),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input_of_a_ledger_command_names_the_option_and_the_remedy(
    muster: Muster, database: tuple[str, ...], words: list[str], message: str
) -> None:
    command, *rest = words
    done = muster("ledger", command, *database, *rest)

    assert done.returncode == 2, done
    assert message in done.stderr
    assert done.stdout == ""


def test_the_database_may_stand_in_the_environment(
    muster: Muster, database: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url, *cluster = database
    monkeypatch.setenv("MUSTER_LEDGER_URL", url)

    done = muster("ledger", "verify", *cluster)

    assert done.returncode == 0, done
    assert "the books of cluster east are right" in done.stdout
