"""The planner: checked nodes → closures over native values. It is the reference for the vectorized evaluation.

Mirrors interpreter/planner.go of cel-go v0.26. A closure takes the activation of one evaluation and returns a value or
raises EvaluationError; it keeps no state, so a program may run in several threads at once. One walk makes both kinds of
programs: those whose cost is tracked, and plain ones. Constants cost nothing.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from admission.cel import environment
from admission.cel.check import type_checker, validators
from admission.cel.core import ast, budget, errors, size_estimate, types, values
from admission.cel.core.activation import FIRST_VARIABLE, Activation, Interpretable, charge_steps
from admission.cel.core.declarations import Overload
from admission.cel.cost import call_runtime_cost
from admission.cel.cost.runtime_cost import CostTracker, charge, stops_at_error, tracked_call
from admission.cel.eval import attributes, comprehensions, dispatch, field_access
from admission.cel.library import optionals, sorting

KEEPS_OPTIONALS = 37
"""The first release that reads an optional as it is (cel-go 0.29); see `optionals.converted`."""

_UNSET = object()
Scope = Mapping[str, Interpretable]


class _Failed:
    """A binding whose value failed: kept, so that reading it again costs nothing."""

    def __init__(self, error: errors.EvaluationError) -> None:
        self.error = error


def plan(
    root: ast.Node, checked: type_checker.CheckedAst, environment: environment.Environment, *, tracks_cost: bool
) -> tuple[Interpretable, int]:
    """Return an expression's closure, and the length of its activation.

    tracks_cost: whether evaluating counts its cost in the activation. Raises RefusalError where cel-go evaluates a
    constant early and fails.
    """
    planner = _Planner(checked, environment, CostTracker(tracks_cost))
    scope = {name: _reader(FIRST_VARIABLE + place) for place, name in enumerate(environment.variables)}
    return planner.plan(root, scope), planner.size


class _Planner:
    def __init__(
        self, checked: type_checker.CheckedAst, environment: environment.Environment, tracker: CostTracker
    ) -> None:
        self.checked = checked
        self.environment = environment
        self.tracker = tracker
        self.size = FIRST_VARIABLE + len(environment.variables)
        self.constants: dict[int, Any] = {}
        self.planned: dict[int, Interpretable] = {}

    def plan(self, node: ast.Node, scope: Scope) -> Interpretable:
        """Return the node's closure. Its parts are planned first, so that long chains do not nest calls."""
        if id(node) not in self.planned:
            for part in ast.in_scope(node, scope):
                if id(part) not in self.planned:
                    self.planned[id(part)] = self._plan(part, scope)
        return self.planned[id(node)]

    def _plan(self, node: ast.Node, scope: Scope) -> Interpretable:  # noqa: C901, PLR0911, PLR0912 - one line a node
        match node:
            case ast.Literal():
                return self._constant(node, node.value)
            case ast.Identifier():
                return self._identifier(node, scope)
            case ast.Select():
                return self._select(node, scope)
            case ast.Has():
                operand = self._operand(node.operand, scope)
                return attributes.has(operand, node.field, self._presence(node), self.tracker)
            case ast.Index():
                return self._index(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Logic():
                return _logic([self.plan(term, scope) for term in node.terms], conjunction=node.conjunction)
            case ast.Conditional():
                branches = (self._branch(part, scope) for part in (node.then, node.otherwise))
                return self._converting(node, _conditional(self.plan(node.condition, scope), *branches))
            case ast.ListLiteral():
                return self._list(node, scope)
            case ast.MapLiteral():
                return self._map(node, scope)
            case ast.Comprehension():
                return self._comprehension(node, scope)
            case ast.Bind():
                return self._bind(node, scope)
            case ast.OptionalMap():
                return self._converting(node, self._optional_map(node, scope))
            case ast.Message():
                return self._message(node, scope)
            case _:
                raise AssertionError(node)

    def _identifier(self, node: ast.Identifier, scope: Scope) -> Interpretable:
        """Plan a variable or type. cel-go looks any identifier whose value is a type up among the names of types."""
        if node.name in scope and self.checked.type_of(node).name != "type":
            return self.tracker.before(1, self._converting(node, scope[node.name]))
        found = self.environment.types.get(node.name)
        if found is None:
            raise errors.RefusalError(
                node.at, f"program instantiation failed: reference to undefined type: {node.name}"
            )
        return self._constant(node, _type_value(found))

    def _converting(self, node: ast.Node, run: Interpretable) -> Interpretable:
        """Convert optionals that a node may give, in releases that do so."""
        type_ = self.checked.type_of(node)
        if self.environment.release >= KEEPS_OPTIONALS or not (type_.name == types.OPTIONAL or types.is_dynamic(type_)):
            return run
        return lambda activation: optionals.converted(run(activation))

    def _new_slot(self) -> int:
        """Return a slot of the activation that nothing else uses."""
        self.size += 1
        return self.size - 1

    def _constant(self, node: ast.Node, value: Any) -> Interpretable:
        """Record that a node always has the same value."""
        self.constants[id(node)] = value
        return lambda _: value

    def _value(self, node: ast.Node) -> Any:
        """Return a node's constant value, or NOT_CONSTANT."""
        return self.constants.get(id(node), validators.NOT_CONSTANT)

    def _is_constant(self, *nodes: ast.Node) -> bool:
        return all(id(node) in self.constants for node in nodes)

    def _operand(self, node: ast.Node, scope: Scope) -> Interpretable:
        """Plan the operand of a qualifier. Making it an attribute costs 1, unless it is one already."""
        operand = self.plan(node, scope)
        return operand if attributes.is_attribute(node, self.checked) else self.tracker.before(1, operand)

    def _branch(self, node: ast.Node, scope: Scope) -> Interpretable:
        branch = self.plan(node, scope)
        return self.tracker.before(-1, branch) if attributes.is_resolved(node, self.checked) else branch

    def _select(self, node: ast.Select, scope: Scope) -> Interpretable:
        if id(node) in self.checked.type_names:
            return self._constant(node, _type_value(self.checked.type_names[id(node)]))
        if id(node) in self.checked.enum_values:
            return self._constant(node, self.checked.enum_values[id(node)])
        operand = self._operand(node.operand, scope)
        return attributes.select(operand, node.field, self.tracker, optional=node.optional)

    def _presence(self, node: ast.Has) -> Callable[[Any, str], bool]:
        """Return the test for a field: of an optional's value too, unless a map or list holds the optional."""
        inner = node.operand
        if isinstance(inner, ast.Select | ast.Index) and not (inner.optional or self._is_optional(inner.operand)):
            return field_access.has_plain_field
        return field_access.has_field

    def _is_optional(self, node: ast.Node) -> bool:
        return self.checked.type_of(node).name == types.OPTIONAL

    def _index(self, node: ast.Index, scope: Scope) -> Interpretable:
        operand, key = self._operand(node.operand, scope), self.plan(node.key, scope)
        cost = int(attributes.is_charged_qualifier(node.key, self.checked))
        literal = self._value(node.key)
        if literal is not validators.NOT_CONSTANT:
            try:
                field_access.check_qualifier(literal)
            except errors.EvaluationError as error:
                raise errors.RefusalError(node.at, f"program instantiation failed: {error}") from None
        return attributes.index(operand, key, literal, self.tracker, optional=node.optional, cost=cost)

    def _call(self, node: ast.Call, scope: Scope) -> Interpretable:
        parts = self.checked.arguments(node)
        arguments = [self.plan(part, scope) for part in parts]
        constants = [self._value(part) for part in parts]
        overloads = self.checked.overloads[id(node)]
        folded = validators.fold(node, overloads, constants)
        if folded is not validators.NOT_CONSTANT:
            return self._constant(node, folded)
        try:
            if self.tracker.is_on and not dispatch.is_free(overloads, constants):
                return self._tracked_call(overloads, arguments, constants)
            return dispatch.plan_call(overloads, self.environment, arguments, constants)
        except errors.EvaluationError as error:
            raise errors.RefusalError(node.at, f"program instantiation failed: {error}") from None

    def _tracked_call(
        self, overloads: Sequence[Overload], arguments: Sequence[Interpretable], constants: Sequence[Any]
    ) -> Interpretable:
        """Plan a call that reads its arguments from slots, so that its cost can be computed from them."""
        slots = [self._new_slot() for _ in arguments]
        call = dispatch.plan_call(overloads, self.environment, [_reader(slot) for slot in slots], constants)
        rule = call_runtime_cost.rule_of(overloads, self.environment.release)
        given = list(zip(dispatch.cast_arguments(overloads, arguments), slots, strict=True))
        return tracked_call(call, rule, given, stops=stops_at_error(overloads, constants))

    def _list(self, node: ast.ListLiteral, scope: Scope) -> Interpretable:
        elements = [self.plan(entry.value, scope) for entry in node.elements]
        optional = [entry.optional for entry in node.elements]
        if self._is_constant(*ast.children(node)) and not any(optional):
            return self._constant(node, tuple(map(self._value, ast.children(node))))
        return self.tracker.after(size_estimate.LIST_COST, _list_builder(elements, optional))

    def _map(self, node: ast.MapLiteral, scope: Scope) -> Interpretable:
        parts = [
            (self.plan(entry.key, scope), self.plan(entry.value, scope), entry.optional)
            for entry in node.entries
            if entry.key is not None
        ]
        evaluate = _map_builder(parts)
        if self._is_constant(*ast.children(node)):
            try:
                return self._constant(node, evaluate([]))
            except errors.EvaluationError:
                pass  # As in cel-go, an error of the evaluation, not of the expression.
        return self.tracker.after(size_estimate.MAP_COST, evaluate)

    def _message(self, node: ast.Message, scope: Scope) -> Interpretable:
        build = self.environment.messages[node.name].build
        parts = [
            (name, self.plan(entry.value, scope), entry.optional)
            for name, entry in zip(node.fields, node.entries, strict=True)
        ]

        def evaluate(activation: Activation) -> Any:
            fields = {}
            for name, field_value, optional in parts:
                value = field_value(activation)
                charge_steps(activation, budget.nested_work((value,)))
                if not optional:
                    fields[name] = value
                elif _as_optional(value).present:
                    fields[name] = value.value
                else:
                    fields.pop(name, None)
            return build(fields)

        return self.tracker.after(size_estimate.MESSAGE_COST, evaluate)

    def _comprehension(self, node: ast.Comprehension, scope: Scope) -> Interpretable:
        source = self.plan(node.range, scope)
        first = self._new_slot()
        second = None if node.second is None else self._new_slot()
        inner = {**scope, node.first: _reader(first)}
        if node.second is not None and second is not None:
            inner[node.second] = _reader(second)
        condition = None if node.condition is None else self.plan(node.condition, inner)
        body = self.plan(node.body, inner)
        slots = (first, second)
        match node.macro:
            case "all" | "exists":
                return comprehensions.decide(source, slots, body, self.tracker, conjunction=node.macro == "all")
            case "exists_one":
                return comprehensions.count_one(source, slots, body, self.tracker)
            case "filter":
                element = self.tracker.before(size_estimate.LIST_COST + 1, _reader(first))
                return comprehensions.collect(source, slots, body, element, self.tracker)
            case "map" | "transformList":
                return comprehensions.collect(source, slots, condition, self._element(node, body), self.tracker)
            case "transformMap" | "transformMapEntry":
                entries = node.macro == "transformMapEntry"
                return comprehensions.collect_map(source, slots, condition, body, self.tracker, entries=entries)
            case _:
                return self._sort_by(node, source, slots, body)

    def _element(self, node: ast.Comprehension, body: Interpretable) -> Interpretable:
        """Charge the list of one element that cel-go builds from a body that is not constant."""
        return body if self._is_constant(node.body) else self.tracker.after(size_estimate.LIST_COST, body)

    def _sort_by(
        self, node: ast.Comprehension, source: Interpretable, slots: comprehensions.Slots, body: Interpretable
    ) -> Interpretable:
        """Plan `cel.bind(l, list, l.@sortByAssociatedKeys(l.map(x, key)))`."""
        slot = self._new_slot()
        source, elements = self.tracker.before(1, source), self.tracker.before(1, _reader(slot))
        keys = comprehensions.collect(elements, slots, None, self._element(node, body), self.tracker)
        is_of_one_type = not types.is_dynamic(self.checked.type_of(node.body))
        if is_of_one_type:
            keys = dispatch.unchecked_cast(keys, tuple)
        is_tracked = self.tracker.is_on
        if is_tracked and not is_of_one_type:
            keys = _charging_failures(keys)

        def evaluate(activation: Activation) -> tuple[Any, ...]:
            try:
                activation[slot] = source(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError as error:
                if not is_of_one_type:
                    raise
                # cel-go calls the only overload with the error for a list: a crash, which nothing absorbs.
                raise errors.AbortError(f"internal error: no list to sort: {error}") from None
            found = keys(activation)
            if type(activation[slot]) is not tuple:
                raise errors.no_such_overload("sortBy")
            if is_tracked:
                charge(activation, call_runtime_cost.sort_cost(found) if is_of_one_type else 1)
            return sorting.by_keys(activation[slot], found)

        return evaluate

    def _bind(self, node: ast.Bind, scope: Scope) -> Interpretable:
        value = self.plan(node.value, scope)
        slot = self._new_slot()
        body = self.plan(node.body, {**scope, node.name: _lazy_reader(slot, value)})

        def evaluate(activation: Activation) -> Any:
            activation[slot] = _UNSET
            return body(activation)

        return evaluate

    def _optional_map(self, node: ast.OptionalMap, scope: Scope) -> Interpretable:
        """Plan `o.hasValue() ? optional.of(cel.bind(x, o.value(), body)) : optional.none()`."""
        operand, slot = self.plan(node.operand, scope), self._new_slot()
        is_tracked, flat = self.tracker.is_on, node.flat
        # Read by the body alone: a value that cannot be read does no harm to one that does not ask for it.
        value, has_value = (lambda activation: activation[slot].value), operand
        if is_tracked:
            has_value = _charging_failures(operand)
            # cel-go evaluates the operand again for its value.
            value = _lazy_reader(slot, self.tracker.before(1, lambda activation: operand(activation).value))
        body = self.plan(node.body, {**scope, node.name: value})

        def evaluate(activation: Activation) -> values.Optional:
            optional = _as_optional(has_value(activation))
            if is_tracked:
                charge(activation, 1 if flat and optional.present else 2)
            if not optional.present:
                return values.NONE
            activation[slot] = _UNSET if is_tracked else optional
            return _as_optional(body(activation)) if flat else values.some(body(activation))

        return evaluate


def _charging_failures(operand: Interpretable) -> Interpretable:
    """Charge a call of an operand that fails, too."""

    def evaluate(activation: Activation) -> Any:
        try:
            return operand(activation)
        except errors.AbortError:
            raise
        except errors.EvaluationError:
            charge(activation, 1)
            raise

    return evaluate


def _reader(slot: int) -> Interpretable:
    return operator.itemgetter(slot)


def _lazy_reader(slot: int, value: Interpretable) -> Interpretable:
    def evaluate(activation: Activation) -> Any:
        found = activation[slot]
        if found is _UNSET:
            try:
                found = value(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError as error:
                found = _Failed(error)
            activation[slot] = found
        if type(found) is _Failed:
            raise found.error
        return found

    return evaluate


def _type_value(type_: Any) -> values.TypeValue:
    return values.TypeValue(values.TYPE_NAMES.get(type_.name, type_.name))


def _as_optional(value: Any) -> values.Optional:
    if type(value) is not values.Optional:
        raise errors.no_such_overload()
    return value


def _map_builder(parts: Sequence[tuple[Interpretable, Interpretable, bool]]) -> Interpretable:
    def evaluate(activation: Activation) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        kinds: dict[Any, type] = {}
        for key_part, value_part, optional in parts:
            key, value = key_part(activation), value_part(activation)
            key = dispatch.checked_key(key)
            if kinds.setdefault(key, type(key)) is not type(key):
                # cel-go has an entry for each kind, and finds the one of the kind that it is asked for.
                raise errors.AbortError("Muster does not evaluate maps with one number as keys of several kinds")
            if not optional:
                result[key] = value
            elif _as_optional(value).present:
                result[key] = value.value
            else:
                result.pop(key, None)
        return result

    return evaluate


def _list_builder(elements: Sequence[Interpretable], optional: Sequence[bool]) -> Interpretable:
    if not any(optional):
        return lambda activation: tuple([element(activation) for element in elements])
    parts = list(zip(elements, optional, strict=True))

    def evaluate(activation: Activation) -> tuple[Any, ...]:
        result = []
        for part, is_optional in parts:
            value = part(activation)
            if not is_optional:
                result.append(value)
            elif _as_optional(value).present:
                result.append(value.value)
        return tuple(result)

    return evaluate


def _logic(terms: Sequence[Interpretable], *, conjunction: bool) -> Interpretable:
    """Plan `&&` (conjunction) or `||`: a term that decides wins over the errors of others."""

    def evaluate(activation: Activation) -> bool:
        error: errors.EvaluationError | None = None
        for term in terms:
            try:
                value = term(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if value is not conjunction:
                if isinstance(value, bool):
                    return value
                error = error or errors.no_such_overload()
        if error is not None:
            raise error
        return conjunction

    return evaluate


def _conditional(condition: Interpretable, then: Interpretable, otherwise: Interpretable) -> Interpretable:
    def evaluate(activation: Activation) -> Any:
        return then(activation) if comprehensions.truth(condition(activation)) else otherwise(activation)

    return evaluate
