"""What the results directory holds: `mutants.json` with every mutant, and `survivors.md` with those nobody noticed."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from tests.mutants.trials import Outcome, Result


def write(folder: Path, results: Sequence[Result], *, seed: int) -> None:
    """Write both files anew."""
    folder.mkdir(exist_ok=True)
    ordered = sorted(results, key=lambda result: result.mutant.place)
    content = {"seed": seed, "noticed": share(results), "mutants": [_entry(result) for result in ordered]}
    (folder / "mutants.json").write_text(json.dumps(content, indent=1) + "\n")
    survivors = [result for result in ordered if not result.is_noticed]
    head = f"# {len(survivors)} of {len(results)} mutants were not noticed (seed {seed})\n"
    (folder / "survivors.md").write_text("\n".join([head, *map(_section, survivors)]))


def share(results: Sequence[Result]) -> float:
    """Return which part of the mutants was noticed, of 1."""
    return sum(result.is_noticed for result in results) / max(len(results), 1)


def table(results: Sequence[Result]) -> Table:
    """Return a row for each package: how many of its mutants came to which end."""
    shown = Table("package", "mutants", *Outcome, "%", "s each", title="Mutants")
    packages = sorted({_package(result) for result in results})
    for package in (*packages, "all") if len(packages) > 1 else packages:
        own = [result for result in results if package in {_package(result), "all"}]
        counts = Counter(result.outcome for result in own)
        seconds = sum(result.seconds for result in own) / len(own)
        counted = [str(counts[outcome]) for outcome in Outcome]
        shown.add_row(package, str(len(own)), *counted, f"{100 * share(own):.1f}", f"{seconds:.1f}")
    return shown


def line(result: Result) -> str:
    """Return a result in a line, for whoever watches."""
    place = result.mutant.place
    return f"{result.outcome:<9} {result.seconds:5.1f}s {place.module}:{place.line} {place.operator} {result.by[:90]}"


def _package(result: Result) -> str:
    return result.mutant.place.module.split("/")[1]


def _entry(result: Result) -> dict[str, object]:
    place = result.mutant.place
    return {
        "module": place.module,
        "line": place.line,
        "operator": place.operator,
        "outcome": result.outcome,
        "by": result.by,
        "tests": result.tests,
        "seconds": result.seconds,
        "diff": result.mutant.diff,
    }


def _section(result: Result) -> str:
    place = result.mutant.place
    said = f"{result.outcome}, {result.tests} tests run it" if result.tests else "no test runs it"
    return f"## {place.module}:{place.line}\n\n{place.operator}: {said}.\n\n```diff\n{result.mutant.diff}\n```\n"
