"""kube-scheduler's filters asked now instead of recorded: on random worlds, as many as wanted.

    python -m tests.conformance.filters 0 20000                      # the worlds of these seeds
    python -m tests.conformance.filters 0 2000 --family NodePorts    # of one plugin, on one version: --version 1.36
    python -m tests.conformance.filters 0 30 --record FILE.jsonl.gz  # write the worlds with their answers

prints each world that differs, by family and seed, and closes with what was compared and differs of each plugin. Needs Go once, to
build Kubernetes.
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
from tests.controlplane.filters import Oracle

AT_ONCE = 5000
"""The worlds that one program is asked before it makes room for a new one."""


def main() -> int:
    asked = _parser().parse_args()
    compared, differ = Counter[str](), Counter[str]()
    records = []
    for record in _records(asked):
        if asked.record:
            records.append(record)
            continue
        name, world, answer = record["id"], record["world"], record["answer"]
        if "error" in answer:
            differ["worlds that are refused"] += 1
            print(f"{name}: {answer['error']}")
            continue
        compared.update(_plugins(world, answer))
        for found in comparison.differences(world, answer):
            differ[found.plugin] += 1
            print(f"{name}: pod {found.pod} on {found.node}: {found.told}")
    if asked.record:
        lines = "".join(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n" for record in records)
        asked.record.write_bytes(gzip.compress(lines.encode(), mtime=0))
        return 0
    for plugin, count in sorted(compared.items()):
        print(f"{plugin}: {count} answers, {differ[plugin]} differ")
    print(f"{sum(compared.values())} agree or differ, {sum(differ.values())} differ")
    return min(sum(differ.values()), 1)


def _records(asked: argparse.Namespace) -> Iterator[Json]:
    for version in asked.version:
        for family in asked.family:
            for first in range(asked.first, asked.end, AT_ONCE):
                with Oracle.of(version) as oracle:
                    for seed in range(first, min(first + AT_ONCE, asked.end)):
                        world = worlds.seeded(seed, family=family, version=version)
                        yield {"id": f"{family}-{version}-{seed}", "world": world, "answer": oracle.ask(world)}


def _plugins(world: Json, answer: Json) -> Iterator[str]:
    """Yield what each node of each pod's answer is about: the plugin that refuses it, or that it fits."""
    for pod in answer["pods"]:
        yield from (refused["plugin"] for refused in pod["refused"].values())
        yield from ("fits" for _ in pod["fits"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.filters", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--family", action="append", choices=[*worlds.FAMILIES, worlds.MIXED])
    parser.add_argument("--version", action="append", choices=worlds.VERSIONS)
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.set_defaults(family=None, version=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
