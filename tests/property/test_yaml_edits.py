"""The text of a manifest in any style, converted: it reads as the converted value, and loses no comment."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, strategies as st

from admission.cli.convert import yaml_text
from admission.conversion import manifests

CASES = Path(__file__).parents[1] / "unit" / "conversion" / "converted.yaml"
BEFORE: list[Any] = [one for case in yaml.safe_load(CASES.read_text()).values() for one in case["before"]]


class _Styled(yaml.SafeDumper):
    """YAML with a style drawn for each node."""

    draw: Any

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as the base class has it
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless and self.draw(st.booleans()))

    def serialize_node(self, node: yaml.Node, parent: Any, index: Any) -> None:
        if isinstance(node, yaml.ScalarNode):
            if node.tag.endswith(":str") and self.draw(st.integers(0, 3)) == 0:
                node.style = self.draw(st.sampled_from(["'", '"', "|"]))
        elif isinstance(node, yaml.CollectionNode):
            node.flow_style = self.draw(st.integers(0, 4)) == 0
        super().serialize_node(node, parent, index)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a text of one to three manifests, with comments between its lines."""
    documents = draw(st.lists(st.sampled_from(BEFORE), min_size=1, max_size=3))
    stream = io.StringIO()
    dumper = _Styled(
        stream, sort_keys=False, indent=draw(st.sampled_from([2, 3, 4])), width=draw(st.sampled_from([40, 1000]))
    )
    dumper.draw = draw
    dumper.open()
    for one in documents:
        dumper.represent(one)
    dumper.close()
    text = stream.getvalue()
    lines: list[str] = []
    for at, line in enumerate(text.split("\n")):
        candidate = "\n".join([*lines, " " * draw(st.integers(0, 8)) + f"# {at}", *text.split("\n")[at:]])
        if draw(st.integers(0, 3)) == 0 and _means(candidate, documents):
            lines = candidate.split("\n")[: len(lines) + 1]
        lines.append(line)
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def _means(text: str, documents: list[Any]) -> bool:
    """Return whether a line of comment is one, rather than a line of a text."""
    try:
        return list(yaml.safe_load_all(text)) == documents
    except yaml.YAMLError:
        return False


@given(texts())
def test_a_converted_text_reads_as_the_converted_value_and_keeps_its_comments(text: str) -> None:
    read = yaml_text.read(text)
    for document in read.documents:
        (conversion,) = manifests.convert([document.value])
        document.added += conversion.added

    written = read.written()

    assert list(yaml.safe_load_all(written)) == [
        one for document in read.documents for one in (document.value, *document.added)
    ]
    if not read.rewritten:
        assert Counter(comments(text)) <= Counter(comments(written))


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("# ")]


@given(texts())
def test_a_text_without_changes_is_written_as_it_was(text: str) -> None:
    assert yaml_text.read(text).written() == text
