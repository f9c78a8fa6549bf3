"""Attributes: a variable with its qualifiers (`.field`, `[key]`), which cel-go resolves as a whole.

Mirrors interpreter/attributes.go and planner.go of cel-go v0.26, whose attributes decide what is charged: a tracked
qualifier costs 1; one of an optional costs 1 only if the optional and the qualifier are present.
"""

from collections.abc import Callable
from typing import Any

from admission.cel.check import type_checker
from admission.cel.core import ast, errors, values
from admission.cel.core.activation import Activation, Interpretable
from admission.cel.cost.runtime_cost import CostTracker, charge
from admission.cel.eval import field_access


def is_attribute(node: ast.Node, checked: type_checker.CheckedAst) -> bool:
    """Whether cel-go plans the node as an attribute, to which further qualifiers are added."""
    return isinstance(
        node, ast.Identifier | ast.Select | ast.Index | ast.Conditional | ast.OptionalMap | ast.Has
    ) and not checked.is_name(node)


def is_resolved(node: ast.Node, checked: type_checker.CheckedAst) -> bool:
    """Whether a branch of a condition is resolved with it rather than evaluated, which costs 1 less."""
    if isinstance(node, ast.Has) or not is_attribute(node, checked):
        return False
    while isinstance(node, ast.Select | ast.Index):
        node = node.operand
    return not isinstance(node, ast.Conditional | ast.OptionalMap)


def is_charged_qualifier(key: ast.Node, checked: type_checker.CheckedAst) -> bool:
    """Whether a key is charged as a qualifier; an attribute as key has charged that 1 for itself."""
    return isinstance(key, ast.Has | ast.Conditional | ast.OptionalMap) or not is_attribute(key, checked)


def select(operand: Interpretable, name: str, tracker: CostTracker, *, optional: bool) -> Interpretable:
    """Plan `operand.name`, or `operand.?name`."""
    access = field_access.optional_field if optional else field_access.field
    if tracker.is_on:
        return _tracked(operand, lambda _: name, access, optional=optional, cost=1)
    if optional:
        return lambda activation: access(operand(activation), name)
    return _field_reader(operand, name)


def index(
    operand: Interpretable, key: Interpretable, literal: Any, tracker: CostTracker, *, optional: bool, cost: int
) -> Interpretable:
    """Plan `operand[key]`, or `operand[?key]`. literal: the key's value if it is constant; cost: see `_tracked`."""
    access = field_access.optional_index if optional else field_access.index
    if tracker.is_on:
        return _tracked(operand, key, access, optional=optional, cost=cost)
    if type(literal) is str and not optional:
        return _field_reader(operand, literal)
    return lambda activation: access(operand(activation), key(activation))


def has(
    operand: Interpretable, name: str, is_present: Callable[[Any, str], bool], tracker: CostTracker
) -> Interpretable:
    """Plan `has(operand.name)`. Its cost is that of the operand, less 1 if the test is not reached."""
    if not tracker.is_on:
        return lambda activation: is_present(operand(activation), name)

    def evaluate(activation: Activation) -> bool:
        charge(activation, -1)
        value = operand(activation)
        found = is_present(value, name)
        if found or type(value) is not values.Optional:
            charge(activation, 1)
        return found

    return evaluate


def _field_reader(operand: Interpretable, name: str) -> Interpretable:
    def evaluate(activation: Activation) -> Any:
        value = operand(activation)
        if type(value) in values.MAPS:
            try:
                return value[name]
            except KeyError:
                raise errors.no_such_key(name) from None
        return field_access.field(value, name)

    return evaluate


def _tracked(
    operand: Interpretable, key: Interpretable, access: Callable[[Any, Any], Any], *, optional: bool, cost: int
) -> Interpretable:
    """Charge the qualifier. cost: what is charged besides the key: 1, or 0 if the key has charged 1 for itself."""

    def evaluate(activation: Activation) -> Any:
        value = operand(activation)
        is_optional = type(value) is values.Optional
        if not (optional or is_optional):
            charge(activation, cost)
            return access(value, key(activation))
        if is_optional and not value.present:
            return values.NONE
        charge(activation, cost - 1)
        found = access(value, key(activation))
        if found.present:
            charge(activation, 1)
        return found

    return evaluate
