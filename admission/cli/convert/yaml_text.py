"""YAML documents whose values are changed in place, written back with all that did not change as it was.

What was written is read again and compared; a document that cannot be edited (with aliases, or in a rare style) is
written anew, without its comments.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from admission.cli import manifest_reader
from admission.cli.convert import yaml_editor
from admission.cli.convert.yaml_editor import CannotEditError, Nodes

MOST_VALUES = 2_000_000
"""Values of a document, with those that its aliases stand for."""

_MERGE = "tag:yaml.org,2002:merge"
_HASH = re.compile(r"(?<!\S)#")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class TooManyValuesError(Exception):
    """The aliases of a document stand for more values than are read, or for themselves."""


@dataclass(slots=True)
class Document:
    """A document of a text. value: is changed in place; added: is written behind it, each as a document of its own.

    before: a copy of the value as it was read; is_shared: whether parts of it stand for others (aliases, merge keys).
    """

    value: Any
    node: yaml.Node
    before: Any
    is_shared: bool
    added: list[Any] = field(default_factory=list)

    @property
    def is_changed(self) -> bool:
        return bool(self.added) or self.value != self.before


@dataclass(slots=True)
class Text:
    """A text and its documents. rewritten: whether one could only be written anew, without its comments."""

    source: str
    documents: list[Document]
    nodes: Nodes
    rewritten: bool = False

    def written(self) -> str:
        """Return the text with all changes."""
        rows = _BREAK.split(self.source)
        for document in reversed(self.documents):
            if document.is_changed:
                last = yaml_editor.last_row(document.node, rows)
                rows[document.node.start_mark.line : last + 1] = self._changed(document, rows)
        found = _BREAK.search(self.source)
        return (found[0] if found is not None else "\n").join(rows)

    def _changed(self, document: Document, rows: Sequence[str]) -> list[str]:
        """Return the rows that stand for a changed document."""
        wanted = [document.value, *document.added]
        try:
            if not document.is_shared:
                changed = yaml_editor.edited(document.value, document.added, document.node, rows, self.nodes)
                if _values("\n".join([*changed, ""])) == wanted:
                    return [*_lost_comments(document.node, rows, changed), *changed]
        except (CannotEditError, yaml.YAMLError, RecursionError):
            pass
        self.rewritten = True
        prefix = rows[document.node.start_mark.line][: document.node.start_mark.column].rstrip()
        return [*([prefix] if prefix else []), *"---\n".join(map(yaml_editor.dump, wanted)).splitlines()]


def read(text: str) -> Text:
    """Read a text that is valid YAML. Raises TooManyValuesError."""
    found = Text(source=text, documents=[], nodes=Nodes())
    loader = manifest_reader.Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            is_shared = _is_shared(node)
            if is_shared:
                _measure(node, {})
            value = _unshared(loader.construct_document(node))
            before = copy.deepcopy(value)
            if not is_shared:
                found.nodes.note(node, value, before)
            found.documents.append(Document(value=value, node=node, before=before, is_shared=is_shared))
    finally:
        loader.dispose()
    return found


def _values(text: str) -> list[Any]:
    loader = manifest_reader.Loader(text)
    try:
        found = []
        while loader.check_data():
            found.append(loader.get_data())
        return found
    finally:
        loader.dispose()


def _is_shared(root: yaml.Node) -> bool:
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node.tag == _MERGE or id(node) in seen:
            return True
        seen.add(id(node))
        pending += _parts(node)
    return False


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values that a node stands for. sizes: of nodes, too many while one is being measured."""
    if id(node) not in sizes:
        sizes[id(node)] = MOST_VALUES
        sizes[id(node)] = 1 + sum(_measure(part, sizes) for part in _parts(node))
    if sizes[id(node)] >= MOST_VALUES:
        raise TooManyValuesError
    return sizes[id(node)]


def _unshared(value: Any) -> Any:
    """Return a value in which nothing stands for something else, so that a change is in one place."""
    if isinstance(value, dict):
        return {name: _unshared(one) for name, one in value.items()}
    return [_unshared(one) for one in value] if isinstance(value, list) else value


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _lost_comments(node: yaml.Node, rows: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Return the comments whose place is no more; they go in front of the document."""
    before = rows[node.start_mark.line : yaml_editor.last_row(node, rows) + 1]
    lost = Counter(_comments(before)) - Counter(_comments(changed))
    return list(lost.elements())


def _comments(rows: Sequence[str]) -> Iterator[str]:
    """Yield the comment of each row that has one: a # at its beginning, or behind a space and outside of quotes."""
    for row in rows:
        places = (found.start() for found in _HASH.finditer(row))
        at = next((at for at in places if not any(row.count(quote, 0, at) % 2 for quote in "'\"")), None)
        if at is not None:
            yield row[at:].rstrip()
