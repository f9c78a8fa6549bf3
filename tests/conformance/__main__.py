"""Hold recorded answers of Kubernetes against ours: `python -m tests.conformance allocator|cel FILE… [--profile 1.37]`.

Files are in the corpus' format, a record of JSON a line, `.jsonl` or `.jsonl.gz`. Prints each record that differs, by
its id, and closes with `N agree, M differ`; the exit code is 0 only when none differs.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance import allocators, cels

Difference = Callable[[dict[str, Any], str], str | None]
"""From a record and a release: what was expected and what was got, or None where they agree."""

SUBJECTS: Mapping[str, Difference] = {"allocator": allocators.difference, "cel": cels.difference}


def main() -> int:
    given = _parser().parse_args()
    difference = SUBJECTS[given.subject]
    agree = differ = 0
    for record in records(given.files):
        found = difference(record, given.profile)
        if found is None:
            agree += 1
        else:
            differ += 1
            print(f"{record['id']}: {found}")
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
    parser.add_argument("subject", choices=sorted(SUBJECTS), help="what the records ask")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--profile", choices=("1.36", "1.37"), default="1.36", help="the release to answer as")
    return parser


if __name__ == "__main__":
    sys.exit(main())
