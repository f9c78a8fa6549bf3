"""The matrix of faults as it was measured: as a table, as JSON, and in docs/reliability.md."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.faults import FAULTS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench-results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEADER = ("fault", "what users see", "what is guaranteed", "next grant", "pods refused in queued namespaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one fault did. Seconds are counted from its start or end, as `since` says.

    lasted: from start to end. grant: until a gang was let in again. refused, reviews: of so many pods of queued
    namespaces so many were refused. refusing: until the last refusal. bystanders: pods of other namespaces, none of
    which was refused; slowest: how long the slowest of them took. in_part: how long a gang ran in part at the most.
    """

    fault: str
    since: str
    lasted: float
    grant: float
    reviews: int
    refused: int
    refusing: float
    bystanders: int
    slowest: float
    gangs: int
    in_part: int

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the row of the page."""
        fault = FAULTS[self.fault]
        refused = f"{self.refused} of {self.reviews}"
        if self.refused:
            side = "after" if self.refusing >= 0 else "before"
            refused += f", the last {abs(self.refusing):.1f} s {side} its {self.since}"
        grant = f"{self.grant:.1f} s after its {self.since}"
        return (f"{self.fault}, for {self.lasted:.0f} s", fault.seen, fault.kept, grant, refused)


def publish(rows: Sequence[Row]) -> None:
    """Print what was measured, keep it, and write it into the page where that is asked for."""
    print()
    for row in rows:
        name, _, _, *measured = row.cells
        print(f"{name}: {'; '.join(measured)}; {row.bystanders} others in at most {row.slowest:.1f} s")
    RESULTS.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept |= {row.fault: asdict(row) for row in rows}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    if os.environ.get("MUSTER_REGENERATE"):
        before, _, rest = PAGE.read_text().partition(BEGIN)
        known = [Row(**kept[name]) for name in FAULTS if name in kept]
        PAGE.write_text(f"{before}{BEGIN}\n{table(known)}{END}{rest.partition(END)[2]}")


def table(rows: Sequence[Row]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *(row.cells for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
