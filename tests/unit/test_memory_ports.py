"""The memory ledger keeps the ledger's promises; what a cycle relies on is not weaker offline."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from admission.api.names import MeterName, QueueName
from admission.errors import DeposedError
from admission.flow import memory
from admission.quota import books

GRANT = books.grant(QueueName("team"), MeterName("gpus"), 8, at=datetime(2026, 1, 1, tzinfo=UTC), actor="test")


async def test_an_entry_is_recorded_once() -> None:
    ledger = memory.Ledger()
    (first,) = await ledger.post_all([GRANT], epoch=1)
    (again,) = await ledger.post_all([GRANT], epoch=1)

    assert again == replace(first, repeated=True)
    assert (await ledger.load()).nominal(QueueName("team"), MeterName("gpus")) == 8


async def test_a_deposed_leader_cannot_write() -> None:
    ledger = memory.Ledger()
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await ledger.post_all([GRANT], epoch=1)
    with pytest.raises(DeposedError):
        await ledger.fence(1)
