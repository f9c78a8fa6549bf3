"""`muster convert --from openb`, and the simulation of what it makes."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Muster

SAMPLE = Path(__file__).parents[3] / "config" / "examples" / "openb"
NODES, PODS = SAMPLE / "openb_node_list_gpu_node.csv", SAMPLE / "openb_pod_list_default.csv"


def test_the_sample_is_played_from_its_two_lists(muster: Muster, tmp_path: Path) -> None:
    cluster, jobs = tmp_path / "cluster.json", tmp_path / "jobs.jsonl"

    made = muster("convert", "--from", "openb", str(NODES))
    cluster.write_text(made.stdout)
    assert (made.returncode, made.stderr) == (0, "4 nodes with 16 GPUs written\n")
    made = muster("convert", "--from", "openb", str(PODS))
    jobs.write_text(made.stdout)
    assert made.returncode == 0
    assert made.stderr.startswith("11 jobs written; 1 pods were never scheduled and are left out")

    played = muster("simulate", str(cluster), "--arrivals", str(jobs), "--compare", "fifo-count", "--format", "json")
    assert played.returncode == 0, played.stderr
    of_muster, counting = json.loads(played.stdout)["results"]
    assert of_muster["all"]["started"] == 11
    assert of_muster["all"]["waitSeconds"]["mean"] < counting["all"]["waitSeconds"]["mean"]


def test_a_list_that_goes_to_simulate_as_it_is_is_told_how_to_convert_it(muster: Muster) -> None:
    ended = muster("simulate", str(SAMPLE.parent), "--arrivals", str(PODS))

    assert ended.returncode == 2
    assert f"`muster convert --from openb {PODS}` makes jobs of it" in " ".join(ended.stderr.split())


WRONG = {
    "neither list": ("a,b\n1,2\n", "list.csv:1: is not the line of headings of either list"),
    "nodes as the first kind": ("a,b\n1,2\n", "; the columns of nodes are sn,cpu_milli,"),
    "pods between other signs": (PODS.read_text().replace(",", ";"), "; the columns of pods are name,cpu_milli,"),
    "a last row that is cut off": (
        PODS.read_text() + "p1,100,100,1,500,,LS,Running,0",
        "list.csv:14: deletion_time: has no cell, as the row ends after 9 of 11 cells; complete it, or get the file",
    ),
    "a row of too many cells": (
        NODES.read_text().replace(",8,L40", ",8,L40,7,8"),
        "list.csv:2: cell 6 of 7: has no heading; take it out, or put a cell that has commas in quotation marks",
    ),
    "a NUL in a cell that is not read": (
        PODS.read_text().replace("Succeeded", "Suc\0eeded", 1),
        "list.csv:2: pod_phase: has a NUL, which no text has",
    ),
    "a column less": (
        PODS.read_text().replace("gpu_spec", "spec"),
        "list.csv:1: gpu_spec: is no heading; the columns of pods are name,",
    ),
    "a list without times": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n",
        "list.csv:1: scheduled_time: is no heading; the columns of pods are name,",
    ),
    "no rows": ("sn,cpu_milli,memory_mib,gpu,model\n", "list.csv: has no rows below a line of headings"),
    "nothing": ("", "list.csv: has no rows"),
    "a wrong cell": (NODES.read_text().replace(",8,L40", ",eight,L40"), "list.csv:2: gpu: 'eight' is no whole number"),
    "a column twice": ("sn,sn\na,b\n", "list.csv:1: sn: is the heading of more than one column"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_list_that_cannot_be_read_is_told_with_file_line_and_column(
    muster: Muster, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)

    ended = muster("convert", "--from", "openb", str(path))

    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_one_list_is_converted_at_a_time(muster: Muster) -> None:
    ended = muster("convert", "--from", "openb", str(NODES), str(PODS))

    assert ended.returncode == 2
    assert "--from openb converts one list" in ended.stderr


def test_the_rows_that_are_read_are_bounded(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admission.cli.convert.openb.MOST_ROWS", 3)

    ended = muster("convert", "--from", "openb", str(NODES))

    assert ended.returncode == 2
    assert "has more than 3 rows; convert the first ones, as of `head`" in ended.stderr
