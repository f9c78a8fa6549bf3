"""Closures that count what evaluating costs: variables, qualifiers, calls, lists, turns of folds, each as in cel-go.

For the few texts whose types and sizes do not prove that they stay far below the limit. Mirrors
interpreter/runtimecost.go, planner.go and attributes.go of cel-go v0.26: a variable with its qualifiers is one
attribute; arguments are evaluated even if the first one failed; what is constant costs nothing.
"""

from collections.abc import Sequence
from typing import Any

from admission.cel.check import validators
from admission.cel.core import ast, budget, errors, frames, size_estimate, values
from admission.cel.core.declarations import Overload
from admission.cel.core.frames import Frame, Run
from admission.cel.cost import call_runtime_cost, static_cost
from admission.cel.eval import comprehensions, dispatch, field_access, interpreter
from admission.cel.eval.interpreter import Scope, reader

_LAZY = frozenset({"or", "orValue"})


def charge(frame: Frame, cost: int) -> None:
    """Add to the cost. Raises AbortError beyond the limit."""
    frame[frames.COST] += cost
    if frame[frames.COST] > static_cost.LIMIT:
        raise budget.exceeded()


class Counter(interpreter.Compiler):
    """A compiler whose programs count their cost in the frame."""

    def _compile(self, node: ast.Node, scope: Scope) -> Run:
        match node:
            case ast.Identifier() if node.name in scope:
                return _charging(1, scope[node.name])
            case ast.Conditional():
                then, otherwise = (self._branch(part, scope) for part in (node.then, node.otherwise))
                return interpreter.conditional(self.compile(node.condition, scope), then, otherwise)
            case _:
                return super()._compile(node, scope)

    def _branch(self, node: ast.Node, scope: Scope) -> Run:
        """Compile a branch of a condition: an attribute in it is resolved, not evaluated, which costs 1 less."""
        run = self.compile(node, scope)
        is_evaluated = isinstance(node, ast.Has | ast.Conditional) or not self._is_attribute(node)
        return run if is_evaluated or self._is_conditional_chain(node) else _charging(-1, run)

    def _is_attribute(self, node: ast.Node) -> bool:
        """Whether cel-go plans the node as an attribute, which further qualifiers prolong."""
        return (
            isinstance(node, ast.Identifier | ast.Select | ast.Index | ast.Conditional | ast.Has)
            and id(node) not in self.checked.named
        )

    def _is_conditional_chain(self, node: ast.Node) -> bool:
        while isinstance(node, ast.Select | ast.Index):
            node = node.operand
        return isinstance(node, ast.Conditional)

    def _operand(self, node: ast.Node, scope: Scope) -> Run:
        """Compile what is qualified: an attribute of its own where it is none yet, which costs 1."""
        run = self.compile(node, scope)
        return run if self._is_attribute(node) else _charging(1, run)

    def _select(self, node: ast.Select, scope: Scope) -> Run:
        if id(node) in self.checked.named:
            return super()._select(node, scope)
        operand, name, optional = self._operand(node.operand, scope), node.field, node.optional

        def run(frame: Frame) -> Any:
            value = operand(frame)
            if optional or type(value) is values.Optional:
                return _if_present(frame, field_access.optional_field(value, name))
            charge(frame, 1)
            return field_access.field(value, name)

        return run

    def _has(self, node: ast.Has, scope: Scope) -> Run:
        """Charge the operand alone, less 1 if the test is not reached."""
        operand, name, is_there = self._operand(node.operand, scope), node.field, self.presence(node)

        def run(frame: Frame) -> bool:
            charge(frame, -1)
            value = operand(frame)
            found = is_there(value, name)
            if found or type(value) is not values.Optional:
                charge(frame, 1)
            return found

        return run

    def _index(self, node: ast.Index, scope: Scope) -> Run:
        operand, key = self._operand(node.operand, scope), self.compile(node.key, scope)
        optional = node.optional
        extra = int(not self._is_attribute(node.key) or isinstance(node.key, ast.Has | ast.Conditional))
        own = int(not extra)

        def run(frame: Frame) -> Any:
            value = operand(frame)
            if optional or type(value) is values.Optional:
                if type(value) is values.Optional and not value.present:
                    return values.NONE
                charge(frame, -own)
                return _if_present(frame, field_access.optional_index(value, key(frame)))
            charge(frame, extra)
            return field_access.index(value, key(frame))

        return run

    def _call(self, node: ast.Call, scope: Scope) -> Run:
        plain = super()._call(node, scope)
        overloads = self.checked.calls[id(node)]
        name = overloads[0].name
        if id(node) in self.constants or (name in _LAZY and overloads[0].member):
            return plain
        parts = list(node.arguments)
        if node.receiver is not None and id(node) not in self.checked.plain:
            parts.insert(0, node.receiver)
        runs = dispatch.asserted(overloads, [self.compile(part, scope) for part in parts])
        constants = [self.constant_of(part) for part in parts]
        if name == "@in" and dispatch.is_literal_set(overloads, constants[1]):
            return plain
        slots = [self.place() for _ in parts]
        call = dispatch.compile_call(overloads, self.environment, [reader(slot) for slot in slots], constants)
        rule = call_runtime_cost.rule_of(overloads, self.environment.release)
        return _counted_call(call, rule, list(zip(runs, slots, strict=True)), stops=_stops(overloads, constants))

    def _list(self, node: ast.ListLiteral, scope: Scope) -> Run:
        run = super()._list(node, scope)
        return run if self._is_folded(node) else _charging_after(size_estimate.LIST_COST, run)

    def _map(self, node: ast.MapLiteral, scope: Scope) -> Run:
        run = super()._map(node, scope)
        return run if self._is_folded(node) else _charging_after(size_estimate.MAP_COST, run)

    def _message(self, node: ast.Message, scope: Scope) -> Run:
        return _charging_after(size_estimate.MESSAGE_COST, super()._message(node, scope))

    def _is_folded(self, node: ast.Node) -> bool:
        """Whether cel-go computes the value once."""
        return self.constant_of(node) is not validators.NOT_CONSTANT

    def _comprehension(self, node: ast.Comprehension, scope: Scope) -> Run:
        source = self.compile(node.range, scope)
        first = self.place()
        second = None if node.second is None else self.place()
        inner = {**scope, node.first: reader(first)}
        if node.second is not None and second is not None:
            inner[node.second] = reader(second)
        condition = None if node.condition is None else self.compile(node.condition, inner)
        body = self.compile(node.body, inner)
        slots = (first, second)
        match node.macro:
            case "all" | "exists":
                return _deciding(source, slots, body, conjunction=node.macro == "all")
            case "exists_one":
                return _counting_one(source, slots, body)
            case "filter":
                return _collecting(source, slots, body, _charging(size_estimate.LIST_COST + 1, reader(first)))
            case "map" | "transformList":
                cost = 0 if self._is_folded(node.body) else size_estimate.LIST_COST
                return _collecting(source, slots, condition, _charging_after(cost, body))
            case "transformMap" | "transformMapEntry":
                return _mapping(source, slots, condition, body, entries=node.macro == "transformMapEntry")
            case _:
                return self._sorting(node, source, slots, body)

    def _sorting(self, node: ast.Comprehension, source: Run, slots: comprehensions.Slots, body: Run) -> Run:
        """Count `cel.bind(l, list, l.@sortByAssociatedKeys(l.map(x, key)))`."""
        slot = self.place()
        cost = 0 if self._is_folded(node.body) else size_estimate.LIST_COST
        keys = _collecting(_charging(1, reader(slot)), slots, None, _charging_after(cost, body))
        place = self.place()
        ordered = dispatch.sort_by(reader(slot), reader(place))
        is_one_kind = self.orders_one_kind(node)
        if is_one_kind:
            keys = dispatch.crashing(keys, tuple)

        def run(frame: Frame) -> Any:
            charge(frame, 1)
            frame[slot] = source(frame)
            frame[place] = found = keys(frame)
            charge(frame, call_runtime_cost.sorted_by(found) if is_one_kind else 1)
            return ordered(frame)

        return run

    def _optional_map(self, node: ast.OptionalMap, scope: Scope) -> Run:
        """Count `o.hasValue() ? optional.of(cel.bind(x, o.value(), body)) : optional.none()`."""
        operand = self.compile(node.operand, scope)
        slot = self.place()
        value = interpreter.lazy_reader(slot, _value_of(operand))
        body = self.compile(node.body, {**scope, node.name: value})
        flat = node.flat

        def run(frame: Frame) -> Any:
            optional = interpreter.as_optional(operand(frame))
            charge(frame, 1)
            if not optional.present:
                charge(frame, 1)
                return values.NONE
            frame[slot] = interpreter.UNSET
            if flat:
                return interpreter.as_optional(body(frame))
            charge(frame, 1)
            return values.some(body(frame))

        return run


def _stops(overloads: Sequence[Overload], constants: Sequence[Any]) -> bool:
    """Whether the first argument that fails ends a call, as where cel-go chooses the overload only then."""
    first = overloads[0]
    if len(constants) > 2 or first.name == "format":
        return True
    if first.prepare is not None and first.prepare(constants) is not None:
        return True
    return len(constants) == 2 and len(overloads) > 1 and first.name[0].isalpha()


def _charging(cost: int, inner: Run) -> Run:
    def run(frame: Frame) -> Any:
        charge(frame, cost)
        return inner(frame)

    return run


def _charging_after(cost: int, inner: Run) -> Run:
    """Charge when the value is there, or has failed."""

    def run(frame: Frame) -> Any:
        try:
            value = inner(frame)
        except errors.AbortError:
            raise
        except errors.EvaluationError:
            charge(frame, cost)
            raise
        charge(frame, cost)
        return value

    return run


def _if_present(frame: Frame, optional: values.Optional) -> values.Optional:
    if optional.present:
        charge(frame, 1)
    return optional


def _value_of(operand: Run) -> Run:
    def run(frame: Frame) -> Any:
        optional = operand(frame)
        charge(frame, 1)
        return optional.value

    return run


def _counted_call(call: Run, rule: call_runtime_cost.Rule, parts: Sequence[tuple[Run, int]], *, stops: bool) -> Run:
    """Evaluate all arguments, charge by what they are before calling, or by what came of it.

    stops: an error ends the call at no cost, but for the last argument's.
    """
    slots = [slot for _, slot in parts]
    called = _called_first if rule in call_runtime_cost.LATE else _charged_first

    def run(frame: Frame) -> Any:
        error: errors.EvaluationError | None = None
        for argument, slot in parts:
            try:
                frame[slot] = argument(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                if stops and slot != slots[-1]:
                    raise
                frame[slot] = raised
                error = error or raised
        arguments = [frame[slot] for slot in slots]
        if error is not None:
            charge(frame, rule(arguments, error))
            raise error
        return called(call, rule, frame, arguments)

    return run


def _charged_first(call: Run, rule: call_runtime_cost.Rule, frame: Frame, arguments: Sequence[Any]) -> Any:
    """Charge, then call: what costs too much is not begun. A crash costs nothing."""
    cost = rule(arguments, None)
    charge(frame, cost)
    try:
        return call(frame)
    except errors.AbortError:
        frame[frames.COST] -= cost
        raise


def _called_first(call: Run, rule: call_runtime_cost.Rule, frame: Frame, arguments: Sequence[Any]) -> Any:
    try:
        result = call(frame)
    except errors.AbortError:
        raise
    except errors.EvaluationError as raised:
        charge(frame, rule(arguments, raised))
        raise
    charge(frame, rule(arguments, result))
    return result


def _deciding(source: Run, slots: comprehensions.Slots, body: Run, *, conjunction: bool) -> Run:
    """Count `all` or `exists`: each turn asks first whether the answer is known."""
    deciding = not conjunction
    asking = 2 if conjunction else 3

    def run(frame: Frame) -> bool:
        error: errors.EvaluationError | None = None
        decided = False
        for _ in comprehensions.turns(frame, source(frame), slots):
            charge(frame, asking)
            if decided:
                break
            charge(frame, 1)
            try:
                value = body(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            decided = value is deciding
            if not decided and value is not conjunction:
                error = error or errors.no_such_overload()
        charge(frame, 1)
        if decided:
            return deciding
        if error is not None:
            raise error
        return conjunction

    return run


def _counting_one(source: Run, slots: comprehensions.Slots, body: Run) -> Run:
    def run(frame: Frame) -> bool:
        error: errors.EvaluationError | None = None
        count = 0
        for _ in comprehensions.turns(frame, source(frame), slots):
            try:
                holds = comprehensions.truth(body(frame))
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if holds:
                charge(frame, 2)
                count += 1
        charge(frame, 2)
        if error is not None:
            raise error
        return count == 1

    return run


def _collecting(source: Run, slots: comprehensions.Slots, condition: Run | None, body: Run) -> Run:
    """Count `map`, `transformList` and `filter`, which add a list of one element each turn, also after an error."""

    def run(frame: Frame) -> tuple[Any, ...]:
        error: errors.EvaluationError | None = None
        result: list[Any] = []
        for _ in comprehensions.turns(frame, source(frame), slots):
            try:
                if condition is not None and not comprehensions.truth(condition(frame)):
                    continue
                charge(frame, 2)
                result.append(body(frame))
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
        charge(frame, 1)
        if error is not None:
            raise error
        return tuple(result)

    return run


def _mapping(source: Run, slots: comprehensions.Slots, condition: Run | None, body: Run, *, entries: bool) -> Run:
    """Count `transformMap` and `transformMapEntry`."""

    def run(frame: Frame) -> dict[Any, Any]:
        error: errors.EvaluationError | None = None
        result: dict[Any, Any] = {}
        for _ in comprehensions.turns(frame, source(frame), slots):
            try:
                if condition is not None and not comprehensions.truth(condition(frame)):
                    continue
                charge(frame, 1)
                if entries:
                    charge(frame, 1)
                    comprehensions.insert_all(result, body(frame))
                elif error is None:
                    charge(frame, 1)
                    value = body(frame)
                    charge(frame, 1)
                    comprehensions.insert(result, frame[slots[0]], value)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
        charge(frame, 1)
        if error is not None:
            raise error
        return result

    return run
