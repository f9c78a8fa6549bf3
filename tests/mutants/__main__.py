"""Plant faults in the packages that decide, and tell which ones the tests do not notice: `python -m tests.mutants`.

Writes mutants.json and survivors.md to mutant-results; the exit code is 1 when less than `--least` percent are noticed.
"""

import argparse
import random

from rich.console import Console

from tests.mutants import planting, recording, report, scope, trials
from tests.mutants.choosing import Record

RESULTS = scope.ROOT / "mutant-results"
EVERY = 25
"""After so many results the files are written, for whoever cannot wait for the last."""


def main() -> int:
    given = _parser().parse_args()
    modules = scope.modules(given.packages)
    folder = recording.ensure(RESULTS, modules, given.tests, workers=given.workers)
    record = Record(folder, most_seconds=given.patience)
    for test in record.failed:
        print(f"not used, for it does not pass without a fault: {test}")
    mutants = planting.sampled(scope.ROOT, modules, size=given.sample, seed=given.seed)
    print(f"{len(mutants)} mutants of {len(modules)} modules, seed {given.seed}", flush=True)

    results: list[trials.Result] = []

    def note(result: trials.Result) -> None:
        results.append(result)
        print(report.line(result), flush=True)
        if len(results) % EVERY == 0:
            report.write(RESULTS, results, seed=given.seed)

    controls = trials.run(mutants, record, workers=given.workers, done=note)
    for test in sorted(controls.failing):
        print(f"not relied on, for in a trial it fails without a fault: {test}")

    report.write(RESULTS, results, seed=given.seed)
    Console().print(report.table(results))
    return int(100 * report.share(results) < given.least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=1000, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="which mutants")  # noqa: S311
    parser.add_argument("--packages", nargs="+", default=scope.DECIDING, help="packages or modules, below admission")
    parser.add_argument("--tests", nargs="+", default=scope.TESTS, help="tests that may notice a fault")
    parser.add_argument("--workers", type=int, default=2, help="how many mutants are tried at once")
    parser.add_argument("--patience", type=float, default=60, help="seconds of tests, as recorded, for one mutant")
    parser.add_argument("--least", type=float, default=90, help="percent of mutants that have to be noticed")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
