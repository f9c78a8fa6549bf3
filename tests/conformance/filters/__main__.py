"""kube-scheduler's filters asked now instead of recorded: on random worlds, as many as wanted.

    python -m tests.conformance.filters 0 20000                      # the worlds of these seeds
    python -m tests.conformance.filters 0 2000 --family NodePorts    # of one plugin, on one version: --version 1.36
    python -m tests.conformance.filters 0 30 --record FILE.jsonl.gz  # write the worlds with their answers

prints each world that differs, by family and seed, and closes with the counts of each plugin and `N agree, M differ`,
of nodes for one pod. Needs Go once, to build Kubernetes.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.filters import comparison, worlds
from tests.conformance.filters.world import Json
from tests.controlplane import building
from tests.controlplane.filters import Oracle

FAMILIES = (*worlds.FAMILIES, worlds.MIXED, worlds.COMPETING, worlds.NOMINATED)

AT_ONCE = 5000
"""The worlds that one program is asked before it makes room for a new one."""


def main() -> int:
    asked = _parser().parse_args()
    if asked.record:
        lines = "".join(json.dumps(one, separators=(",", ":"), sort_keys=True) + "\n" for one in _records(asked))
        asked.record.write_bytes(gzip.compress(lines.encode(), mtime=0))
        return 0
    counts: dict[str, Counter[str]] = {"compared": Counter(), "differ": Counter(), "named otherwise": Counter()}
    for record in _records(asked):
        name, world, answer = record["id"], record["world"], record["answer"]
        if "error" in answer:
            print(f"{name}: {answer['error']}")
            counts["differ"]["refused worlds"] += 1
            continue
        for found in comparison.compared(world, answer):
            counts["compared"][found.plugin] += 1
            counts["named otherwise"][found.plugin] += found.there != found.here and not found.differs
            if found.differs:
                counts["differ"][found.plugin] += 1
                print(f"{name}: {found}")
    for plugin in sorted({*counts["compared"], *counts["differ"]}):
        print(f"{plugin}: " + ", ".join(f"{count[plugin]} {what}" for what, count in counts.items()))
    differ = counts["differ"].total()
    print(f"{counts['compared'].total() - differ} agree, {differ} differ")
    return min(differ, 1)


def _records(asked: argparse.Namespace) -> Iterator[Json]:
    for version in asked.version:
        for family in asked.family:
            for first in range(asked.first, asked.end, AT_ONCE):
                with Oracle([asked.program, Oracle.PROGRAM]) if asked.program else Oracle.of(version) as oracle:
                    for seed in range(first, min(first + AT_ONCE, asked.end)):
                        world = worlds.seeded(seed, family=family, version=version)
                        yield {"id": f"{family}-{version}-{seed}", "world": world, "answer": oracle.ask(world)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.filters", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=FAMILIES)
    versions = (*worlds.VERSIONS, *building.ON_DEMAND)
    parser.add_argument("--version", nargs="+", choices=versions, default=worlds.VERSIONS)
    parser.add_argument("--program", help="`controlplane` of the version, if it is built already")
    parser.add_argument("--record", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
