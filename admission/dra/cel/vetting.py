"""What cel-go tests in a checked text beyond its types: literals whose value decides whether a call can succeed.

Source: cel/validator.go (durations, timestamps, patterns) and ext/formatting.go (`format`), v0.26.
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
    for node in _all(root):
        if not isinstance(node, nodes.Call):
            continue
        if node.function in ("duration", "timestamp") and node.receiver is None:
            _vet_conversion(node, checked)
        elif node.function == "format" and isinstance(node.receiver, nodes.Literal):
            _vet_format(node, node.receiver.value, checked)


def _all(root: nodes.Node) -> Iterator[nodes.Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(nodes.children(node))


def _vet_conversion(node: nodes.Call, checked: checking.Checked) -> None:
    argument = node.arguments[0]
    if not isinstance(argument, nodes.Literal):
        return
    try:
        folding.convert(checked.calls[id(node)], argument.value)
    except failures.EvaluationError:
        raise failures.RefusalError(argument.at, f"invalid {node.function} argument") from None


def _vet_format(node: nodes.Call, pattern: object, checked: checking.Checked) -> None:
    arguments = node.arguments[0]
    if not isinstance(pattern, str) or not isinstance(arguments, nodes.ListLiteral):
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
