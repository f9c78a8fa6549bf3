"""A Kubernetes that has no profile yet, held against the newest profile: which features it decides otherwise.

    make newer VERSION=v1.38.0-alpha.0

builds the oracles of that version in the cache (tests/controlplane/newer.py), asks them about random worlds, selectors
and filters, and writes a table to dist/newer-VERSION.md, with the seed of the first difference in each row. A world has
several features, and one that differs counts for each of them: look at the rows with the largest share first.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admission.dra import compatibility
from tests.conformance import kubernetes
from tests.conformance.filters import comparison as filter_comparison, worlds
from tests.conformance.selectors import comparison, expressions
from tests.controlplane import allocators, building, filters, newer, selectors
from tests.property import clusters

Record = dict[str, Any]

FEATURES: Mapping[str, str] = {
    "firstAvailable": '"firstAvailable"',
    "mode All": '"allocationMode": "All"',
    "admin access": '"adminAccess": true',
    "matchAttribute": '"matchAttribute"',
    "distinctAttribute": '"distinctAttribute"',
    "attributes that are lists": '"ListTypeAttributes": true',
    "counters": '"consumesCounters"',
    "capacity that requests ask for": '"capacity": {"requests"',
    "shared devices": '"allowMultipleAllocations": true',
    "device taints": '"taints": [{',
    "binding conditions": '"bindingConditions"',
    "devices chosen for nodes one by one": '"perDeviceNodeSelection": true',
}
"""The features of an allocation, by what a world that has them says in JSON."""

PLAIN = "none of these"


@dataclass(slots=True)
class Table:
    """What was asked, by subject and feature: how often, how often answers differ, and where they do first."""

    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    differ: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], str] = field(default_factory=dict)

    def count(self, subject: str, feature: str, difference: str | None, where: str) -> None:
        """Count one question. difference: None where the answers agree."""
        row = subject, feature
        self.asked[row] += 1
        if difference is not None:
            self.differ[row] += 1
            self.first.setdefault(row, where)

    def markdown(self, version: str) -> str:
        release = compatibility.BY_VERSION[-1]
        lines = [
            f"# Kubernetes {version} and the profile {release}",
            "",
            "| subject | feature | asked | differ | first |",
            "| --- | --- | --- | --- | --- |",
        ]
        rows = ((*row, self.asked[row], self.differ[row], self.first.get(row, "")) for row in sorted(self.asked))
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.newer")
    parser.add_argument("version", help="of k8s.io/kubernetes, such as v1.38.0-alpha.0")
    parser.add_argument("--program", help="`controlplane` of the version, if it is built already")
    parser.add_argument("--worlds", type=int, default=2000, help="how many of each are asked (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("dist"), help="where the table is written")
    asked = parser.parse_args(arguments)
    try:
        program = asked.program or str(newer.build(asked.version))
    except (building.BuildFailed, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = Table()
    with allocators.Oracle([program, allocators.Oracle.PROGRAM]) as oracle:
        ask_allocator(table, oracle.ask, asked.worlds)
    with selectors.Oracle([program, selectors.Oracle.PROGRAM]) as compiler:
        ask_selectors(table, compiler.ask, asked.worlds)
    with filters.Oracle([program, filters.Oracle.PROGRAM]) as scheduler:
        ask_filters(table, scheduler.ask, asked.worlds)
    asked.folder.mkdir(exist_ok=True)
    path = asked.folder / f"newer-{asked.version}.md"
    path.write_text(table.markdown(asked.version))
    print(f"{path.read_text()}\nwritten to {path}")
    return min(table.differ.total(), 1)


def features_of(record: Record) -> Iterator[str]:
    """Yield the features that a world of the allocator has."""
    text = json.dumps(record)
    found = [name for name, mark in FEATURES.items() if mark in text]
    yield from found or [PLAIN]


def ask_allocator(table: Table, ask: Callable[[Record], Record], count: int) -> None:
    """Count what the allocator answers to worlds with the gates of a release as it comes."""
    release = compatibility.BY_VERSION[-1]
    for seed in range(count):
        record = clusters.seeded(seed)
        found = kubernetes.difference(record, release, ask)
        for feature in features_of(record):
            table.count("allocator", feature, found, f"seed {seed}")


def ask_selectors(table: Table, ask: Callable[[Record], Record], count: int) -> None:
    """Count what the compiler of selectors answers, as many of each kind as it takes to be `count`."""
    release = compatibility.BY_VERSION[-1]
    for kind in expressions.KINDS:
        for seed in range(count // len(expressions.KINDS)):
            record = expressions.record(kind, seed)
            found = comparison.difference(record, ask(record), release)
            table.count("selectors", kind, found, f"seed {seed}")


def ask_filters(table: Table, ask: Callable[[Record], Record], count: int) -> None:
    """Count what the filters say of each node, by the plugin that refuses it, in a tenth as many worlds."""
    version = str(compatibility.BY_VERSION[-1])
    for seed in range(count // 10):
        world = worlds.seeded(seed, version=version)
        answer = ask(world)
        if "error" in answer:
            table.count("filters", "worlds that are refused", answer["error"], f"seed {seed}: {answer['error']}")
            continue
        for one in filter_comparison.compared(world, answer):
            table.count("filters", one.plugin, str(one) if one.differs else None, f"seed {seed}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
