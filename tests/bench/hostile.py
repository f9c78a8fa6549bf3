"""Reviews that are made to take long: processor time until the answer, and what the answer is.

Each is judged by a process whose caches are as at its start, since a cache answers the second time.
"""

import gc
import time
from typing import Any

from rich.table import Table

from admission.cel.syntax import parser
from admission.review.caches import ReviewCaches
from admission.webhook import handler
from tests.property import hostile_reviews
from tests.unit.webhook.cases import MemoryView


def measure() -> dict[str, Any]:
    """Answer each once."""
    parser.prepare()
    rows = []
    for name, (door, make) in hostile_reviews.TABLE.items():
        sent = make()
        judge = hostile_reviews.doors(MemoryView(hostile_reviews.a_snapshot()), ReviewCaches())[door]
        handler.answer(hostile_reviews.body("", "pods", {}), judge)
        gc.collect()
        started = time.process_time()
        answer = handler.answer(sent, judge)
        seconds = time.process_time() - started
        rows.append(
            {
                "review": name,
                "bytes": len(sent),
                "seconds": seconds,
                "outcome": f"{answer.outcome} {answer.reason}".strip(),
                "answer_bytes": len(answer.body),
            }
        )
    return {"rows": rows}


def table(result: dict[str, Any]) -> Table:
    """Show them."""
    made = Table(title="Reviews that are made to take long")
    for column in ("review", "bytes", "processor ms", "outcome", "bytes of the answer"):
        made.add_column(column, justify="right")
    for row in result["rows"]:
        made.add_row(
            row["review"],
            f"{row['bytes']:,}",
            f"{row['seconds'] * 1e3:,.1f}",
            row["outcome"],
            f"{row['answer_bytes']:,}",
        )
    return made
