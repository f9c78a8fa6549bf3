"""Manifests are read as Kubernetes reads them, and what is wrong is named with file, line and field."""

import io
from pathlib import Path

import pytest

from admission.cli import manifest_reader
from admission.cli.manifest_reader import BadInputError, Manifest
from admission.errors import Problem

TWO = """\
# a comment
apiVersion: v1
kind: Namespace
metadata:
  name: team
---
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata:
  name: team
  creationTimestamp: 2026-01-01T00:00:00Z
spec:
  quotas:
  - meter: gpus
    nominal: 4
  - meter: claims
    nominal: many
  example.com/dots.in.key:
    deep: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, text: str, name: str = "in.yaml") -> list[Manifest]:
    path = folder / name
    path.write_text(text)
    return manifest_reader.read([str(path)])


def refused(folder: Path, text: str, name: str = "in.yaml") -> list[str]:
    with pytest.raises(BadInputError) as caught:
        read(folder, text, name)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_documents_are_read_in_order_and_empty_ones_are_skipped(folder: Path) -> None:
    found = read(folder, TWO)

    assert [manifest.label for manifest in found] == ["Namespace team", "Queue team"]


def test_times_in_manifests_stay_text(folder: Path) -> None:
    assert read(folder, TWO)[1].body["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_numbers_are_those_of_kubernetes(folder: Path) -> None:
    """Minutes and seconds, what looks like a hash, and `=` are text, as in go.yaml.in/yaml/v2."""
    written = "[12:30, 1:02:03.5, 8e1234, =, 1e3, 08, 0777, 0x1F, 1_000, -.5, 2.0]"

    (found,) = read(folder, f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {written}\n")

    assert found.body["spec"] == ["12:30", "1:02:03.5", "8e1234", "=", 1000.0, 8.0, 511, 31, 1000, -0.5, 2.0]


@pytest.mark.parametrize(
    ("field", "line"),
    {
        "spec.quotas[1].nominal": 18,
        "spec.quotas[0].nominal": 16,
        "spec.quotas[7].nominal": 15,
        "spec.quotas[1].absent": 17,
        "spec.example.com/dots.in.key.deep": 20,
        "spec[example.com/dots.in.key].deep": 20,
        "metadata.name": 11,
        "status.absent": 8,
        "": 8,
    }.items(),
)
def test_a_problem_is_shown_at_the_line_of_its_field_or_of_the_enclosing_one(
    folder: Path, field: str, line: int
) -> None:
    assert read(folder, TWO)[1].place(field) == f"{folder}/in.yaml:{line}"


def test_a_problem_names_file_line_object_and_field(folder: Path) -> None:
    problem = read(folder, TWO)[1].problem(Problem("spec.quotas[1].nominal", "is no amount"))

    assert problem == f"{folder}/in.yaml:18: Queue team: spec.quotas[1].nominal: is no amount"


def test_a_list_is_taken_apart_and_its_items_keep_their_lines(folder: Path) -> None:
    text = "kind: List\napiVersion: v1\nitems:\n- {kind: Node, apiVersion: v1}\n- kind: Pod\n  apiVersion: v1\n"
    found = read(folder, text)

    assert [manifest.body["kind"] for manifest in found] == ["Node", "Pod"]
    assert found[1].place("apiVersion").endswith(":6")
    assert found[1].place("metadata.name").endswith(":5")


def test_items_of_a_typed_list_get_their_kind_from_the_list(folder: Path) -> None:
    found = read(folder, '{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}', "in.json")

    assert found[0].body == {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}


def test_json_is_read_and_its_lines_are_known_too(folder: Path) -> None:
    found = read(folder, '{\n "kind": "Pod",\n "apiVersion": "v1",\n "spec": {\n  "nodeName": 3}\n}', "in.json")

    assert found[0].place("spec.nodeName").endswith(":5")


def test_folders_are_read_recursively_without_hidden_files(folder: Path) -> None:
    for name in ("b.yaml", "a/c.json", "d.txt", ".git/e.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}')

    found = manifest_reader.read([str(folder)])

    assert [Path(manifest.source.name).name for manifest in found] == ["c.json", "b.yaml"]


def test_a_dash_is_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TWO.encode())))

    assert manifest_reader.read(["-"])[0].place() == "(standard input):2"


REFUSED = {
    "a kind that is missing": ("apiVersion: v1\nmetadata: {name: a}\n", "in.yaml:1: None a: kind: is required"),
    "a version that is missing": ("kind: Pod\n", "in.yaml:1: Pod (unnamed): apiVersion: is required"),
    "a version that is no text": ("kind: Pod\napiVersion: 1\n", "in.yaml:2: Pod (unnamed): apiVersion: is 1, a string"),
    "a document that is a list": ("- a\n", "in.yaml:1: is no Kubernetes object"),
    "an item that is text": ("kind: List\nitems:\n- a\n", "in.yaml:3: is no Kubernetes object"),
    "braces that do not close": ("a: {\nb: c\n", "in.yaml:3: is not YAML"),
    "a tab": ("a:\n\tb: c\n", "in.yaml:2: is not YAML"),
    "a key that stands twice": ("kind: Pod\nspec: 1\nspec: 2\n", "in.yaml:3: is not YAML: key 'spec' stands twice"),
    "a value that is no date": ("kind: !!timestamp x\n", "in.yaml"),
    "nesting without end": ("[" * 2000, "in.yaml"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_its_place(folder: Path, text: str, problem: str) -> None:
    assert refused(folder, text)[0].startswith(problem)


def test_all_problems_of_manifests_are_reported_at_once(folder: Path) -> None:
    assert len(refused(folder, "kind: Pod\n---\napiVersion: v1\n---\n{}\n")) == 4


def test_a_manifest_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(BadInputError, match=r"gone\.yaml: No such file"):
        manifest_reader.read([str(folder / "gone.yaml")])


def test_a_folder_without_manifests_is_named(folder: Path) -> None:
    with pytest.raises(BadInputError, match=r"no file in this folder ends in"):
        manifest_reader.read([str(folder)])


def test_text_that_is_not_utf8_is_named_with_its_line(folder: Path) -> None:
    (folder / "in.yaml").write_bytes(b"kind: Pod\nname: \xff\n")
    with pytest.raises(BadInputError, match=r"in\.yaml:2: is not UTF-8"):
        manifest_reader.read([str(folder / "in.yaml")])
