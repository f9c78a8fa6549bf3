"""Device selectors, compared with 2,756 answers of Kubernetes' own compiler (cel-go 0.26 in 1.36.3, 0.29 in 1.37.1).

304 of them are to random expressions of five kinds: sums of quantities at the limits of 64 bits, `join` of any
elements, maps with any keys, constants of enumerations, nested macros. 332 more are of what random expressions over all
functions, typed or with words changed, have found, and some of these.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admission.device_cel import programs
from tests.conformance import __main__ as command, cels

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "cel.jsonl"
COPY = Path(__file__).parent / "data" / "cel.jsonl.gz"
RANDOM = Path(__file__).parent / "data" / "cel-random.jsonl.gz"


def records() -> list[dict[str, Any]]:
    return list(command.records([CORPUS if CORPUS.exists() else COPY, RANDOM]))


def answers() -> Iterator[Any]:
    """Yield one case a record for 1.36, and another where 1.37 answers differently."""
    for record in records():
        yield pytest.param(record, "1.36", id=record["id"])
        if "expect137" in record:
            yield pytest.param(record, "1.37", id=f"{record['id']}-1.37")


@pytest.mark.parametrize(("record", "release"), list(answers()))
def test_answers_as_kubernetes_does(record: dict[str, Any], release: str) -> None:
    assert cels.difference(record, release) is None


def test_no_release_differs_where_the_record_says_that_none_does() -> None:
    same = [record for record in records() if "expect137" not in record and "cost" not in record["touches"]]

    assert [record["id"] for record in same[::7] if cels.difference(record, "1.37") is not None] == []


def test_untracked_programs_give_the_same_answers() -> None:
    """Costs are not tracked where no evaluation can be costly. That must not change an answer."""
    differing = []
    for record in records():
        profile = cels.profile_of(record, "1.36")
        program = programs.compile_device(record["expression"], profile=profile)
        if isinstance(program, programs.Program) and not program.tracks_cost:
            found, _ = program.measure(cels.device(record, lists=profile.reads_lists))
            expected = record["expect"]
            failed = isinstance(found, programs.EvaluationError)
            if failed is not (expected["runtimeError"] is not None) or (not failed and found != expected["result"]):
                differing.append(record["id"])

    assert differing == []


def test_the_command_names_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = next(record for record in records() if record["expect"]["result"] is True)
    wrong = {**right, "id": "wrong", "expect": {**right["expect"], "result": False}}
    file = tmp_path / "some.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, (right, wrong))).encode()))

    monkeypatch.setattr(sys, "argv", ["conformance", "cel", str(file)])

    assert command.main() == 1
    assert capsys.readouterr().out == "wrong: result: expected False, got True\n1 agree, 1 differ\n"
