"""`muster convert` as people type it: the four forms of old walkthroughs, and how it ends."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from admission.cli.convert import files, yaml_text
from tests.unit.cli.conftest import Muster

OLD = Path(__file__).parent / "old_manifests"
FORMS = {"v1-in-the-old-form": 0, "v1alpha2": 4, "v1alpha3": 4, "v1beta1": 0}
"""The code with which converting each ends: 4 where something is left to mend."""

CLAIM = """\
# which GPUs
apiVersion: resource.k8s.io/v1beta1  # of 1.32
kind: ResourceClaim
metadata:
    name: "one"   # quoted
spec:
    devices:
        requests:
            # the first request
            - name: gpu

              # of this class
              deviceClassName: gpu.example.com   # the class
              count: 2
            - {name: nic, deviceClassName: nic.example.com}   # on one line
        config: []  # nothing
# the end
"""
CONVERTED = """\
# which GPUs
apiVersion: resource.k8s.io/v1  # of 1.32
kind: ResourceClaim
metadata:
    name: "one"   # quoted
spec:
    devices:
        requests:
            # the first request
            - name: gpu
              exactly:
                # of this class
                deviceClassName: gpu.example.com   # the class
                count: 2
            - {name: nic, exactly: {deviceClassName: nic.example.com}}   # on one line
        config: []  # nothing
# the end
"""


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    path = tmp_path / "claim.yaml"
    path.write_text(CLAIM)
    return path


@pytest.mark.parametrize(("form", "code"), FORMS.items(), ids=FORMS)
def test_old_walkthroughs_are_converted_and_the_rest_is_told(muster: Muster, form: str, code: int) -> None:
    """Written again by MUSTER_REGENERATE=1."""
    ended = muster("convert", str(OLD / f"{form}.yaml"))

    found = f"{ended.stdout}---\n# told:\n" + "".join(
        f"#   {line.removeprefix(f'{OLD}/')}\n" for line in ended.stderr.splitlines()
    )
    golden = OLD / f"{form}.converted"
    if os.environ.get("MUSTER_REGENERATE"):
        golden.write_text(found)
    assert found == golden.read_text()
    assert ended.returncode == code


def test_comments_quotes_and_order_are_kept(muster: Muster, claim: Path) -> None:
    ended = muster("convert", str(claim))

    assert (ended.returncode, ended.stdout) == (0, CONVERTED)
    assert ended.stderr == "1 files converted: 3 changes, 0 things to check, 0 left to mend by hand\n"


MOVED = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resourceClaims:
  - name: one   # the first
    # whose
    source:
      # why a template
      resourceClaimTemplateName: t   # of all
  containers: [{name: m, image: x}]   # only one
---
apiVersion: resource.k8s.io/v1alpha3
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: a
      deviceClassName: gpu
      selectors:
      - cel:
          # how large
          expression: device.attributes["gpu.example.com"]["memory"].quantity().value() >= 24000000000   # 24 GB
    constraints:
    - requests: [a]   # of the newest
      cel: {expression: 'device.attributes["gpu.example.com/model"].string() == "H100"'}
"""
STAYED = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resourceClaims:
  - name: one   # the first
    # whose
    # why a template
    resourceClaimTemplateName: t   # of all
  containers: [{name: m, image: x}]   # only one
---
# of the newest
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: a
      exactly:
        deviceClassName: gpu
        selectors:
        - cel:
            # how large
            expression: device.capacity["gpu.example.com"].memory.compareTo(quantity("24G")) >= 0   # 24 GB
        - cel: {expression: 'device.attributes["gpu.example.com"].model == "H100"'}
"""


def test_comments_go_with_what_moves_or_before_its_document(muster: Muster, claim: Path) -> None:
    """Where a constraint becomes a selector, nothing new may be taken for what was there (`Nodes.alive`)."""
    claim.write_text(MOVED)

    assert muster("convert", str(claim)).stdout == STAYED


def test_a_file_is_written_in_place_once(muster: Muster, claim: Path) -> None:
    claim.chmod(0o640)

    first = muster("convert", "--in-place", str(claim.parent))
    second = muster("convert", "-i", str(claim))

    assert (first.returncode, first.stdout, claim.read_text()) == (0, "", CONVERTED)
    assert second.stderr.startswith("0 files converted: 0 changes")
    assert [(path.name, path.stat().st_mode & 0o777) for path in claim.parent.iterdir()] == [("claim.yaml", 0o640)]


def test_a_check_writes_nothing_and_tells_each_change_with_its_line(muster: Muster, claim: Path) -> None:
    ended = muster("convert", "--check", str(claim))

    assert ended.returncode == 3
    assert [line.removeprefix(f"{claim}:") for line in ended.stdout.splitlines()] == [
        "2: changed: ResourceClaim one: apiVersion: is resource.k8s.io/v1 today",
        "10: changed: ResourceClaim one: spec.devices.requests[0]: deviceClassName, count stand in `exactly`",
        "15: changed: ResourceClaim one: spec.devices.requests[1]: deviceClassName is in `exactly`",
        "1 files to convert: 3 changes, 0 things to check, 0 left to mend by hand",
    ]
    assert claim.read_text() == CLAIM
    claim.write_text(CONVERTED)
    assert muster("convert", "--check", str(claim)).returncode == 0


def test_a_diff_has_the_changed_lines(muster: Muster, claim: Path) -> None:
    ended = muster("convert", "--diff", str(claim))

    changed = [line for line in ended.stdout.splitlines() if line[0] in "+-"]
    assert changed[:2] == [f"--- {claim}", f"+++ {claim}"]
    assert len(changed) == 14
    assert (ended.returncode, claim.read_text()) == (0, CLAIM)


def test_files_are_one_stream_of_documents(muster: Muster, claim: Path) -> None:
    (claim.parent / "b.json").write_text(json.dumps(yaml.safe_load(CLAIM), indent=4))
    (claim.parent / "values.yaml").write_text("replicas: 3\n")

    ended = muster("convert", str(claim.parent))

    first, second, values = yaml.safe_load_all(ended.stdout)
    assert first == second == yaml.safe_load(CONVERTED)
    assert values == {"replicas": 3}
    assert '\n    "kind": "ResourceClaim",\n' in ended.stdout


def test_lists_are_converted_item_by_item(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one of a kind, whose items need not name it; a template in a pod becomes an item."""
    items = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaimList",
        "items": [{"metadata": {"name": "a"}}],
    }
    template = {"metadata": {"name": "two"}, "spec": {"devices": {}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [], "resourceClaimTemplates": [template]},
    }
    pods = {"apiVersion": "v1", "kind": "List", "items": [pod]}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    text = "\n---\n".join(map(json.dumps, (items, pods)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    ended = muster("convert", "-", str(tmp_path / "pod.json"))

    first, second, third = yaml.safe_load_all(ended.stdout)
    assert [(one["apiVersion"], one["kind"]) for one in (first, *first["items"])] == [
        ("v1", "List"),
        ("resource.k8s.io/v1", "ResourceClaim"),
    ]
    assert second == third
    assert [one["kind"] for one in second["items"]] == ["Pod", "ResourceClaimTemplate"]


def test_aliases_are_written_out_and_that_is_told(muster: Muster, claim: Path) -> None:
    claim.write_text(CLAIM.replace("name: gpu\n", "name: &n gpu\n").replace("name: nic,", "name: *n,"))

    ended = muster("convert", str(claim))

    requests = yaml.safe_load(ended.stdout)["spec"]["devices"]["requests"]
    assert [one["name"] for one in requests] == ["gpu", "gpu"]
    assert "note: " in ended.stderr
    assert "loses its comments" in ended.stderr


BAD = {
    "two ways to write": (("--check", "--diff", "claim.yaml"), "one at a time"),
    "the standard input in place": (("-i", "-"), "name a file"),
    "a file that is not there": (("none.yaml",), "none.yaml: No such file"),
    "a text that is no YAML": (("bad.yaml",), "bad.yaml:2: is not YAML"),
    "an alias of itself": (("itself.yaml",), "aliases stand for too many values"),
    "aliases of aliases": (("laughs.yaml",), "aliases stand for too many values"),
    "levels without end": (("deep.yaml",), "is nested in more than 200 levels"),
    "a very large file": (("large.yaml",), "has more than 1 MiB"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_convert_refuses_an_unreadable_file_with_the_reason(
    muster: Muster, claim: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(claim.parent)
    monkeypatch.setattr(files, "LARGEST", 1024 * 1024)
    laughs = "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 9))
    texts = {
        "bad": "a: [",
        "itself": "a: &a [*a]\n",
        "laughs": f"a0: &a0 [1, 2]\n{laughs}",
        "deep": f"{'[' * 300}{']' * 300}",
        "large": f"# {' ' * files.LARGEST}\n",
    }
    for name, text in texts.items():
        (claim.parent / f"{name}.yaml").write_text(text)

    ended = muster("convert", *words)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  admissionChecks: [approval]
  resourceGroups:
  - coveredResources: [memory]
    flavors: [{name: default, resources: [{name: memory, nominalQuota: 8Gi}]}]
"""


def test_queues_of_kueue_become_queues_and_the_rest_is_reported(muster: Muster, claim: Path) -> None:
    claim.write_text(QUEUES)

    ended = muster("convert", "--from", "kueue", str(claim))

    assert [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(ended.stdout)] == [
        ("Meter", "memory"),
        ("Queue", "vision"),
    ]
    assert ended.returncode == 4
    told, summary = ended.stderr.splitlines()
    assert told.startswith(f"{claim}:5: left: ClusterQueue vision: spec.admissionChecks: put a scheduling gate of")
    assert summary == "2 objects written, 0 things to check, 1 left"
    assert muster("convert", "--from", "kueue", "--check", str(claim)).returncode == 2


def test_a_text_in_a_rare_style_is_written_anew() -> None:
    read = yaml_text.read("# c\na:\n  ? b\n  : |\n    text\n")
    read.documents[0].value["a"]["c"] = "d"
    read.documents[0].value["a"]["b"] = "other"

    assert yaml.safe_load(read.written()) == {"a": {"b": "other", "c": "d"}}
