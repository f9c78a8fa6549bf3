"""Hold recorded answers against ours: `python -m tests.conformance allocator|cel|filters|gang|quota FILE…`.

Files are in the corpus' format, a record of JSON a line, `.jsonl` or `.jsonl.gz`. Prints each record that differs, by
its id, and closes with `N agree, M differ`, of gangs also how many were `feasible` and `infeasible`; the exit code is 0
only when none differs. Options: `--profile 1.36|1.37`, and for gangs `--placement pin|allocate`.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from admission.dra.compatibility import Release
from tests.conformance import allocators, cels, gangs, quotas
from tests.conformance.filters import comparison

Difference = Callable[[dict[str, Any], str], str | None]
"""From a record and a release: what was expected and what was got, or None where they agree."""

SUBJECTS: Mapping[str, Difference] = {
    "allocator": allocators.difference,
    "cel": cels.difference,
    "filters": comparison.difference,
    "quota": lambda record, _: quotas.difference(record),
}
GANG = "gang"


def main() -> int:
    given = _parser().parse_args()
    choice = gangs.PLACEMENTS[given.placement]
    agree = differ = feasible = infeasible = 0
    for record in records(given.files):
        if given.subject == GANG:
            found = gangs.difference(record, Release(given.profile), choice)
            feasible += gangs.is_feasible(record, choice)
            infeasible += not gangs.is_feasible(record, choice)
        else:
            found = SUBJECTS[given.subject](record, given.profile)
        if found is None:
            agree += 1
        else:
            differ += 1
            print(f"{record['id']}: {found}")
    if given.subject == GANG:
        print(f"{feasible} feasible, {infeasible} infeasible")
    print(f"{agree} agree, {differ} differ")
    return 1 if differ else 0


def records(files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of files, one after the other."""
    for path in files:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().split("\n")
        yield from (json.loads(line) for line in lines if line.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("subject", choices=sorted((*SUBJECTS, GANG)), help="what the records ask")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--placement", choices=sorted(gangs.PLACEMENTS), default="pin", help="who chooses devices")
    parser.add_argument("--profile", choices=("1.36", "1.37"), default="1.36", help="the release to answer as")
    return parser


if __name__ == "__main__":
    sys.exit(main())
