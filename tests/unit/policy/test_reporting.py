"""What is reported of queues and meters, from one snapshot and the books."""

from collections import Counter
from typing import Any

import pytest

from admission.api.entries import Bucket
from admission.api.names import MeterName, QueueName
from admission.api.reports import MeterUse
from admission.dra import metering
from admission.policy import reporting
from admission.policy.reporting import Facts
from admission.quota.available import Loans
from admission.quota.books import Account, Book
from admission.quota.tree import Tree
from tests.builders import ClusterBuilder, a_cluster

GPUS = MeterName("gpus")


def facts_of(builder: ClusterBuilder, **used: int) -> Facts:
    snapshot = builder.snapshot()
    balances = {Account(QueueName(queue), GPUS, Bucket.USED): amount for queue, amount in used.items()}
    return Facts(
        snapshot=snapshot,
        book=Book(balances=balances),
        tree=Tree.of(snapshot.queues.values()),
        meters=metering.compile_meters(snapshot.meters.values()),
    )


def gpus_of(facts: Facts) -> dict[str, MeterUse]:
    return {report.name: report.meters[GPUS] for report in reporting.queues([], [], facts) if GPUS in report.meters}


def test_a_queue_shows_what_it_uses_has_borrowed_and_has_lent() -> None:
    builder = a_cluster().queue("root", gpus=0).queue("a", gpus=2, parent="root").queue("b", gpus=6, parent="root")

    uses = gpus_of(facts_of(builder, a=5, b=1))

    assert (uses["a"].nominal, uses["a"].used, uses["a"].borrowed, uses["a"].lent) == (2, 5, 3, 0)
    assert (uses["b"].nominal, uses["b"].used, uses["b"].borrowed, uses["b"].lent) == (6, 1, 0, 3)


def test_an_inactive_queue_borrows_and_lends_nothing() -> None:
    uses = gpus_of(facts_of(a_cluster().queue("a", gpus=2, parent="nobody"), a=5))

    assert (uses["a"].used, uses["a"].borrowed, uses["a"].lent) == (5, 0, 0)


def test_the_books_are_read_once_for_all_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold a row for every queue: once for each queue blocked the loop for seconds with 400 of them."""
    asked: Counter[str] = Counter()

    def counted(owner: type, method: str) -> None:
        original = getattr(owner, method)

        def call(*given: Any) -> Any:
            asked[method] += 1
            return original(*given)

        monkeypatch.setattr(owner, method, call)

    counted(Book, "usage")
    counted(Loans, "_loans_and_pool")
    builder = a_cluster().queue("root", gpus=1)
    for number in range(20):
        builder.queue(f"q{number}", gpus=1, parent="root")

    assert len(gpus_of(facts_of(builder))) == 21
    assert asked == {"usage": 1, "_loans_and_pool": 2}
