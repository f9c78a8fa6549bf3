"""Editor of one YAML document: the rows of a changed value, made of the rows that its parts had.

A round trip through a YAML library writes comments, lists and quotes in its own style and at other places. Here a part
of the value that did not change keeps its text, also where it moved one level up or down; only what is new is written.
The caller has to read the result again and compare it, since YAML has more styles than are known here.

Rows are without line breaks. Within an editor all rows are as wide as in the source: a part that moves is shifted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml


class CannotEditError(Exception):
    """A document is written in a style whose text cannot be edited."""


@dataclass(slots=True)
class Nodes:
    """Which node each mapping and list was read from, and which value each node had."""

    of_value: dict[int, yaml.Node] = field(default_factory=dict)
    before: dict[int, Any] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    """What was read: without it something new could have the identity of what was taken out."""

    def note(self, root: yaml.Node, value: Any, before: Any) -> None:
        """Note a document without aliases. before: a copy of its value, which nobody changes."""
        pending = [(root, value, before)]
        while pending:
            node, one, copied = pending.pop()
            self.before[id(node)] = copied
            self.alive.append(one)
            if isinstance(node, yaml.MappingNode):
                self.of_value[id(one)] = node
                parts = zip(node.value, one.values(), copied.values(), strict=True)
                pending += [(inner, new, old) for (_, inner), new, old in parts]
            elif isinstance(node, yaml.SequenceNode):
                self.of_value[id(one)] = node
                pending += list(zip(node.value, one, copied, strict=True))

    def is_unchanged(self, value: Any, node: yaml.Node) -> bool:
        before = self.before[id(node)]
        return type(value) is type(before) and bool(value == before)


class _Entry(NamedTuple):
    """An entry of a mapping that was read."""

    mapping: yaml.MappingNode
    at: int

    @property
    def key(self) -> yaml.Node:
        found: yaml.Node = self.mapping.value[self.at][0]
        return found

    @property
    def value(self) -> yaml.Node:
        found: yaml.Node = self.mapping.value[self.at][1]
        return found


def edited(value: Any, added: Sequence[Any], node: yaml.Node, rows: Sequence[str], nodes: Nodes) -> list[str]:
    """Return the rows of a changed document and of those behind it. Raises CannotEditError."""
    editor = _Editor(rows, nodes)
    start = node.start_mark
    if _is_block(node) and isinstance(value, dict | list) and value:
        found = _with_prefix(editor.block(value, node, ()), rows[start.line][: start.column])
    else:
        end = node.end_mark
        text = editor.inline(value, node, ())
        found = f"{rows[start.line][: start.column]}{text}{rows[end.line][end.column :]}".split("\n")
    for one in added:
        found += ["---", *editor.entries(one, _mappings(node), 0)]
    return found


def dump(value: Any) -> str:
    """Return a value as YAML of its own."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=math.inf)
    return text


def last_row(node: yaml.Node, rows: Sequence[str]) -> int:
    """Return the last row of a node; libyaml has a block end where the next token begins."""
    if _is_block(node) and node.value:
        inner = node.value[-1]
        return max(last_row(part, rows) for part in (inner if isinstance(inner, tuple) else (inner,)))
    end: int = node.end_mark.line
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        end = min(end, len(rows) - 1)
        while end > node.start_mark.line and (
            not rows[end].strip() or (end == node.end_mark.line and node.end_mark.column == 0)
        ):
            end -= 1
    return end


class _Editor:
    def __init__(self, rows: Sequence[str], nodes: Nodes) -> None:
        self._rows = rows
        self._nodes = nodes
        self._used: set[_Entry] = set()
        self._gaps: dict[int, list[str]] = {}

    # Blocks: rows.

    def block(self, value: Any, node: yaml.Node, donors: Sequence[yaml.MappingNode]) -> list[str]:
        """Return the rows of a block that is not empty, in the columns that it had, without what is before it."""
        if isinstance(value, dict) and isinstance(node, yaml.MappingNode):
            self._used |= {_Entry(node, at) for at, (key, _) in enumerate(node.value) if key.value in value}
            return self.entries(value, (node, *self._removed(value, node), *donors), node.start_mark.column)
        if isinstance(value, list) and isinstance(node, yaml.SequenceNode):
            return [row for one in value for row in self._item(one, node, donors)]
        raise CannotEditError

    def entries(self, value: Mapping[str, Any], donors: Sequence[yaml.MappingNode], column: int) -> list[str]:
        """Return the rows of the entries of a mapping. donors: mappings whose entries it may have, its own first."""
        own = donors[0] if donors and self._nodes.of_value.get(id(value)) is donors[0] else None
        found: list[str] = []
        for key, one in value.items():
            entry = self._entry(key, one, donors, own)
            if entry is None:
                found += self._new_entry(key, one, donors, column)
            else:
                found += _shifted(self._kept(entry, one, donors), column - _column(entry.mapping))
        while found and not found[0].strip():
            found.pop(0)
        return found

    def _entry(
        self, key: str, value: Any, donors: Sequence[yaml.MappingNode], own: yaml.MappingNode | None
    ) -> _Entry | None:
        """Return the entry that a mapping has: its own of this key, or one of another mapping with the same value."""
        for mapping in donors:
            for at, (name, node) in enumerate(mapping.value):
                entry = _Entry(mapping, at)
                if name.value != key:
                    continue
                if mapping is own:
                    return entry
                is_same = self._nodes.of_value.get(id(value)) is node or (
                    not isinstance(value, dict | list) and self._nodes.is_unchanged(value, node)
                )
                if is_same and entry not in self._used:
                    self._used.add(entry)
                    return entry
        return None

    def _removed(self, value: Mapping[str, Any], node: yaml.MappingNode) -> list[yaml.MappingNode]:
        """Return the mappings that stood in a mapping and do not any more; their comments go with what they had."""
        found = []
        for at, (key, inner) in enumerate(node.value):
            if key.value not in value:
                found += _mappings(inner)
                if isinstance(inner, yaml.MappingNode):
                    gap = _shifted(self._gap(_Entry(node, at)), _column(inner) - node.start_mark.column)
                    within = self._rows[key.start_mark.line + 1 : inner.start_mark.line]
                    self._gaps[id(inner)] = [*gap, *within]
        return found

    def _gap(self, entry: _Entry) -> list[str]:
        """Return the rows between an entry and the one before it: comments, empty ones."""
        if entry.at == 0:
            return self._gaps.pop(id(entry.mapping), [])
        if not _is_block(entry.mapping):
            return []
        before = self._last(_Entry(entry.mapping, entry.at - 1))
        return list(self._rows[before + 1 : entry.key.start_mark.line])

    def _last(self, entry: _Entry) -> int:
        return max(last_row(entry.value, self._rows), entry.key.start_mark.line)

    def _kept(self, entry: _Entry, value: Any, donors: Sequence[yaml.MappingNode]) -> list[str]:
        """Return the rows of an entry with the value that it has now."""
        key, node, rows = entry.key, entry.value, self._rows
        gap = self._gap(entry)
        if not _is_block(entry.mapping):
            return [
                *gap,
                *f"{' ' * _column(entry.mapping)}{self._slice(key)}: {self.inline(value, node, donors)}".split("\n"),
            ]
        first = key.start_mark.line
        margin = " " * key.start_mark.column
        if self._nodes.is_unchanged(value, node):
            head = [margin + rows[first][len(margin) :], *rows[first + 1 : self._last(entry) + 1]]
            return [*gap, *head]
        if _is_block(node) and isinstance(value, dict | list) and value:
            head = [margin + rows[first][len(margin) :], *rows[first + 1 : node.start_mark.line]]
            return [*gap, *head, *self.block(value, node, donors)]
        return [*gap, *self._spliced(value, node, donors, margin, first)]

    def _spliced(
        self, value: Any, node: yaml.Node, donors: Sequence[yaml.MappingNode], margin: str, first: int
    ) -> list[str]:
        """Return the rows from `first` to the end of a scalar or a flow collection that has another value now."""
        start, end, rows = node.start_mark, node.end_mark, self._rows
        if _is_block(node):
            raise CannotEditError
        between = [margin + rows[first][len(margin) :], *rows[first + 1 : start.line + 1]]
        before = between.pop()[: start.column]
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            return [*between, *self._block_scalar(value, node)]
        text = self.inline(value, node, donors)
        space = "" if before.endswith((" ", "[", "{")) else " "
        return [*between, *f"{before}{space}{text}{rows[end.line][end.column :]}".split("\n")]

    def _block_scalar(self, value: Any, node: yaml.ScalarNode) -> list[str]:
        """Return the rows of a text in a block (`|`), which has another text now."""
        last = last_row(node, self._rows)
        body = [row for row in self._rows[node.start_mark.line + 1 : last + 1] if row.strip()]
        if not isinstance(value, str) or not body or node.style != "|":
            raise CannotEditError
        margin = " " * (len(body[0]) - len(body[0].lstrip(" ")))
        lines = value.removesuffix("\n").split("\n")
        return [self._rows[node.start_mark.line], *(f"{margin}{line}" if line else "" for line in lines)]

    def _item(self, value: Any, sequence: yaml.SequenceNode, donors: Sequence[yaml.MappingNode]) -> list[str]:
        """Return the rows of an element of a block list."""
        known = self._nodes.of_value.get(id(value))
        at = next((at for at, node in enumerate(sequence.value) if node is known or self._is_scalar(value, node)), None)
        if at is None:
            return self._new_item(value, donors, sequence.start_mark.column)
        node, rows = sequence.value[at], self._rows
        start = node.start_mark
        prefix = rows[start.line][: start.column]
        if prefix.strip() != "-":
            raise CannotEditError
        gap = rows[last_row(sequence.value[at - 1], rows) + 1 : start.line] if at else []
        if self._nodes.is_unchanged(value, node):
            return [*gap, *rows[start.line : last_row(node, rows) + 1]]
        if _is_block(node) and isinstance(value, dict | list) and value:
            return [*gap, *_with_prefix(self.block(value, node, donors), prefix)]
        return [*gap, *self._spliced(value, node, donors, "", start.line)]

    def _is_scalar(self, value: Any, node: yaml.Node) -> bool:
        return not isinstance(value, dict | list) and self._nodes.is_unchanged(value, node)

    def _new_entry(self, key: str, value: Any, donors: Sequence[yaml.MappingNode], column: int) -> list[str]:
        margin, name = " " * column, _flow(key)
        known = self._nodes.of_value.get(id(value))
        if isinstance(value, dict) and value and (known is None or _is_block(known)):
            return [f"{margin}{name}:", *self._inner(value, known, donors, column + 2)]
        if isinstance(value, list) and value and (known is None or _is_block(known)):
            items = (self._new_item(one, donors, column) for one in value)
            return [f"{margin}{name}:", *(row for item in items for row in item)]
        return f"{margin}{name}: {self.inline(value, known, donors)}".split("\n")

    def _new_item(self, value: Any, donors: Sequence[yaml.MappingNode], column: int) -> list[str]:
        known = self._nodes.of_value.get(id(value))
        prefix = f"{' ' * column}- "
        if isinstance(value, dict) and value and (known is None or _is_block(known)):
            return _with_prefix(self._inner(value, known, donors, column + 2), prefix)
        return f"{prefix}{self.inline(value, known, donors)}".split("\n")

    def _inner(
        self, value: Mapping[str, Any], known: yaml.Node | None, donors: Sequence[yaml.MappingNode], column: int
    ) -> list[str]:
        """Return the rows of a mapping that stands at a new place, or is new itself."""
        if known is None:
            return self.entries(value, donors, column)
        return _shifted(self.block(value, known, donors), column - known.start_mark.column)

    # In a line: flow collections and scalars.

    def inline(self, value: Any, node: yaml.Node | None, donors: Sequence[yaml.MappingNode]) -> str:
        """Return a value within a row. node: what it was read from, or stands in the place of."""
        known = self._nodes.of_value.get(id(value))
        if known is not None:
            node = known
        is_text = isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">")
        if node is not None and (is_text or _is_flow(node)) and self._nodes.is_unchanged(value, node):
            return self._slice(node)
        if isinstance(value, dict) and value:
            if known is not None and not _is_flow(known):
                return _flow(value)
            return self._flow_mapping(value, known, node, donors)
        if isinstance(value, list) and value:
            return f"[{', '.join(self.inline(one, None, donors) for one in value)}]"
        if isinstance(node, yaml.ScalarNode) and isinstance(value, str):
            return _flow(value, style=node.style if node.style in ("'", '"') else None)
        return _flow(value)

    def _flow_mapping(
        self,
        value: Mapping[str, Any],
        known: yaml.Node | None,
        replaced: yaml.Node | None,
        donors: Sequence[yaml.MappingNode],
    ) -> str:
        """Return a mapping in a row. replaced: what stood in its place; a text there may be one of its values now."""
        own = known if isinstance(known, yaml.MappingNode) else None
        text = replaced if isinstance(replaced, yaml.ScalarNode) else None
        if own is not None:
            self._used |= {_Entry(own, at) for at, (key, _) in enumerate(own.value) if key.value in value}
            donors = (own, *self._removed(value, own), *donors)
        found = []
        for key, one in value.items():
            entry = self._entry(key, one, donors, own)
            name = _flow(key) if entry is None else self._slice(entry.key)
            found.append(f"{name}: {self.inline(one, entry.value if entry is not None else text, donors)}")
        return f"{{{', '.join(found)}}}"

    def _slice(self, node: yaml.Node) -> str:
        start, end = node.start_mark, node.end_mark
        rows = list(self._rows[start.line : end.line + 1])
        rows[-1] = rows[-1][: end.column]
        rows[0] = rows[0][start.column :]
        return "\n".join(rows)


def _flow(value: Any, style: str | None = None) -> str:
    """Return a value in one row. style: of a text, its quotes."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, default_style=style, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and node.flow_style is True


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _column(mapping: yaml.MappingNode) -> int:
    column: int = mapping.start_mark.column
    return column


def _mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    return [node] if isinstance(node, yaml.MappingNode) else []


def _shifted(rows: Sequence[str], by: int) -> list[str]:
    """Return rows with more or less indentation; a comment may have less than it would lose."""
    if by >= 0:
        return [f"{' ' * by}{row}" if row.strip() else row for row in rows]
    return [row[-by:] if not row[:-by].strip() else row.lstrip() for row in rows]


def _with_prefix(rows: Sequence[str], prefix: str) -> list[str]:
    """Return rows whose first one begins with a prefix in place of its indentation."""
    return [prefix + rows[0][len(prefix) :], *rows[1:]]
