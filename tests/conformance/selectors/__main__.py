"""Kubernetes' compiler of selectors asked now instead of recorded: random expressions, as many as wanted.

    python -m tests.conformance.selectors 0 2000                     # the expressions of these seeds, of every kind
    python -m tests.conformance.selectors 0 2000 --kind quantities --version 1.36

prints each expression that differs, and closes with `N agree, M differ`. Needs Go once, to build Kubernetes.
"""

import argparse
import sys

from tests.conformance.selectors import comparison, expressions
from tests.controlplane import building
from tests.controlplane.selectors import Oracle


def main() -> int:
    asked = _parser().parse_args()
    agree = differ = 0
    for version in asked.version:
        with Oracle([asked.program, Oracle.PROGRAM]) if asked.program else Oracle.of(version) as oracle:
            for kind in asked.kind:
                for seed in range(asked.first, asked.end):
                    record = expressions.record(kind, seed)
                    found = comparison.difference(record, oracle.ask(record), version)
                    agree, differ = agree + (found is None), differ + (found is not None)
                    if found is not None:
                        print(f"{version} {record['id']} {record['mode']}: {record['expression']}\n    {found}")
    print(f"{agree} agree, {differ} differ")
    return min(differ, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.selectors")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--kind", nargs="*", choices=expressions.KINDS, default=tuple(expressions.KINDS))
    parser.add_argument(
        "--version", nargs="*", choices=(*building.VERSIONS, *building.ON_DEMAND), default=building.VERSIONS
    )
    parser.add_argument("--program", help="`controlplane` of the version, if it is built already")
    return parser


if __name__ == "__main__":
    sys.exit(main())
