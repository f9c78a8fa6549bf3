"""What cel-go tests in a checked text beyond its types: literals whose value decides whether a call can succeed.

Source: cel/validator.go (durations, timestamps, lists and maps of one type) and ext/formatting.go (`format`), v0.26.
"""

from collections.abc import Iterator

from admission.dra.cel import checking, failures, folding, kinds, nodes
from admission.dra.cel.kinds import Kind
from admission.dra.cel.library import formatting

_FORMATTABLE = {
    "s": {"list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"},
    "d": {"int", "uint"},
    "f": {"double", "string"},
    "e": {"double", "string"},
    "b": {"int", "uint", "bool"},
    "x": {"int", "uint", "string", "bytes"},
    "X": {"int", "uint", "string", "bytes"},
    "o": {"int", "uint"},
}


def vet(root: nodes.Node, checked: checking.Checked) -> None:
    """Raise RefusalError at the first literal that cannot be right where it stands."""
    for node, within_format in _all(root):
        match node:
            case nodes.ListLiteral() | nodes.MapLiteral() if not within_format:
                _vet_aggregate(node, checked)
            case nodes.Call(function="duration" | "timestamp", receiver=None):
                _vet_conversion(node, checked)
            case nodes.Call(function="format", receiver=nodes.Literal(value=str() as pattern)):
                _vet_format(node, pattern, checked)
            case _:
                pass


def _all(root: nodes.Node) -> Iterator[tuple[nodes.Node, bool]]:
    """Yield all nodes, with whether they stand in a call of `format`, which takes lists of several types."""
    waiting = [(root, False)]
    while waiting:
        node, within_format = waiting.pop()
        yield node, within_format
        within_format = within_format or (isinstance(node, nodes.Call) and node.function == "format")
        waiting.extend((part, within_format) for part in reversed(nodes.children(node)))


def _vet_aggregate(node: nodes.ListLiteral | nodes.MapLiteral, checked: checking.Checked) -> None:
    entries = node.elements if isinstance(node, nodes.ListLiteral) else node.entries
    _vet_same_kind([(entry.key, False) for entry in entries if entry.key is not None], checked)
    _vet_same_kind([(entry.value, entry.optional) for entry in entries], checked)


def _vet_same_kind(parts: list[tuple[nodes.Node, bool]], checked: checking.Checked) -> None:
    common: Kind | None = None
    for part, optional in parts:
        kind = checked.kind(part)
        if optional:
            kind = kinds.unwrapped(kind)[0]
        if kind.name == "wrapper":
            kind = kind.parameters[0]
        if common is not None and kind != common:
            raise failures.RefusalError(part.at, f"expected type '{common}' but found '{kind}'")
        common = kind


def _vet_conversion(node: nodes.Call, checked: checking.Checked) -> None:
    argument = node.arguments[0]
    if not isinstance(argument, nodes.Literal):
        return
    try:
        folding.convert(checked.calls[id(node)], argument.value)
    except failures.EvaluationError:
        raise failures.RefusalError(argument.at, f"invalid {node.function} argument") from None


def _vet_format(node: nodes.Call, pattern: str, checked: checking.Checked) -> None:
    arguments = node.arguments[0]
    if not isinstance(arguments, nodes.ListLiteral):
        return
    given = [entry.value for entry in arguments.elements]
    used = 0
    try:
        for _, letter, _ in formatting.clauses(pattern):
            if not letter:
                continue
            if used >= len(given):
                raise failures.RefusalError(node.at, f"index {used} out of range")
            _vet_argument(given[used], letter, checked)
            used += 1
    except failures.EvaluationError as error:
        raise failures.RefusalError(node.at, str(error)) from None
    if used < len(given):
        raise failures.RefusalError(
            node.at, f"too many arguments supplied to string.format (expected {used}, got {len(given)})"
        )


def _vet_argument(node: nodes.Node, letter: str, checked: checking.Checked) -> None:
    kind: Kind = checked.kind(node)
    if kind == kinds.DYN:
        return
    if kind.name not in _FORMATTABLE[letter]:
        raise failures.RefusalError(node.at, f"error during formatting: %{letter} was given {kind}")
    if letter == "s" and isinstance(node, nodes.ListLiteral | nodes.MapLiteral):
        for part in nodes.children(node):
            _vet_argument(part, letter, checked)
