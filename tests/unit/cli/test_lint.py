"""`muster lint` as people type it: lines, JSON, SARIF, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Muster

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"
TRAP = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: one
  namespace: vision
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        selectors:
        - cel:
            expression: device.attributes['gpu.example.com'].model == 'H100'
"""
INSTEAD = "'model' in device.attributes['gpu.example.com'] && device.attributes['gpu.example.com'].model == 'H100'"


@pytest.fixture
def trap(tmp_path: Path) -> str:
    path = tmp_path / "claim.yaml"
    path.write_text(TRAP)
    return str(path)


def test_the_examples_are_clean(muster: Muster) -> None:
    ended = muster("lint", str(EXAMPLES))

    assert (ended.returncode, ended.stdout) == (0, "17 objects, 0 errors, 0 warnings\n")


def test_lines_name_file_line_object_field_and_correction(muster: Muster, trap: str) -> None:
    ended = muster("lint", trap)

    first, second, last = ended.stdout.splitlines()
    assert ended.returncode == 3
    assert first.startswith(
        f"{trap}:14: warning: ResourceClaim vision/one: spec.devices.requests[0].exactly.selectors[0].cel.expression:"
        " column 37: device.attributes['gpu.example.com'].model has no guard"
    )
    assert first.endswith("[UnguardedLookup]")
    assert second == f"    instead: {INSTEAD}"
    assert last == "1 objects, 0 errors, 1 warnings"


def test_lint_writes_remarks_as_json(muster: Muster, trap: str) -> None:
    answer: Any = json.loads(muster("lint", trap, "--format", "json").stdout)

    (remark,) = answer["remarks"]
    assert remark.pop("message").startswith("column 37: ")
    assert remark == {
        "file": trap,
        "line": 14,
        "severity": "warning",
        "code": "UnguardedLookup",
        "object": {"kind": "ResourceClaim", "namespace": "vision", "name": "one"},
        "field": "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "instead": INSTEAD,
    }
    assert answer["summary"] == {"objects": 1, "errors": 0, "warnings": 1}


def test_lint_writes_remarks_as_sarif(muster: Muster, trap: str) -> None:
    answer: Any = json.loads(muster("lint", trap, "--format", "sarif").stdout)

    (run,) = answer["runs"]
    (result,) = run["results"]
    assert answer["version"] == "2.1.0"
    assert result["ruleId"] == "UnguardedLookup"
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert result["level"] == "warning"
    assert result["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": trap}, "region": {"startLine": 14}}}
    ]


def test_errors_end_with_4(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(TRAP.replace("device.attributes['gpu.example.com'].model == 'H100'", "device.foo"))

    ended = muster("lint", str(path))

    assert ended.returncode == 4
    assert "claim.yaml:14: error: ResourceClaim vision/one: spec.devices" in ended.stdout
    assert ended.stdout.splitlines()[0].endswith("[Refused]")


def test_lint_of_a_file_that_is_no_manifest_exits_with_2(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text("kind: [")

    ended = muster("lint", str(path))

    assert ended.returncode == 2
    assert "is not YAML" in ended.stderr


def test_the_help_of_lint_has_examples(muster: Muster) -> None:
    ended = muster("lint", "--help")

    assert "Exit codes" in ended.stdout
    assert "muster lint config/examples" in ended.stdout
