"""The demo's month of books: simulated, reported, and proved."""

import json
from pathlib import Path

import pytest

from tests.demo import month
from tests.demo.telling import Teller, muster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300, func_only=True)]

DAYS = 10
"""Of the month, that are simulated here; `make demo` has all of them."""


async def test_a_month_is_reported_by_queue_and_user_and_a_changed_row_is_found(tmp_path: Path) -> None:
    async with month.written(tmp_path, DAYS) as jobs:
        await month.tell(Teller(quiet=True), tmp_path, jobs)

    file = tmp_path / month.FILE
    options = f"--database sqlite:///{file} --cluster demo --from 2026-10-01 --to 2026-11-01 --format json"
    _, output = await muster(*f"ledger report --by queue,user {options}".split(), env={})
    rows = json.loads(output)["rows"]
    assert {(row["queue"], row["user"]) for row in rows} == {
        (team, person) for team, people in month.PEOPLE.items() for person in people
    }
    capacity = 16 * DAYS * 24 * 3600
    assert capacity / 4 < sum(int(row["deviceSeconds"]) for row in rows) < capacity
