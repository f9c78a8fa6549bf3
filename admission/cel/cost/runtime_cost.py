"""The runtime cost: the tracked cost of one evaluation, for variables, qualifiers, calls, literals and folds.

Mirrors interpreter/runtimecost.go of cel-go v0.26. A program is tracked unless its static cost proves that it stays far
below the limit. The planner passes each closure to its CostTracker, which wraps it for a tracked program and returns it
unchanged for others.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from admission.cel.core import budget, errors
from admission.cel.core.activation import COST, Activation, Interpretable
from admission.cel.core.declarations import Overload
from admission.cel.cost import call_runtime_cost, static_cost


def charge(activation: Activation, cost: int) -> None:
    """Add to the cost. Raises AbortError beyond the limit."""
    activation[COST] += cost
    if activation[COST] > static_cost.LIMIT:
        raise budget.exceeded()


class CostTracker(NamedTuple):
    """Makes closures charge the activation, if the program is tracked."""

    is_on: bool

    def before(self, cost: int, inner: Interpretable) -> Interpretable:
        """Charge before evaluating."""
        if not self.is_on:
            return inner

        def evaluate(activation: Activation) -> Any:
            activation[COST] += cost
            if activation[COST] > static_cost.LIMIT:
                raise budget.exceeded()
            return inner(activation)

        return evaluate

    def after(self, cost: int, inner: Interpretable) -> Interpretable:
        """Charge after evaluating, whether it succeeds or fails."""
        if not self.is_on:
            return inner

        def evaluate(activation: Activation) -> Any:
            try:
                value = inner(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError:
                charge(activation, cost)
                raise
            charge(activation, cost)
            return value

        return evaluate


def tracked_call(
    call: Interpretable, rule: call_runtime_cost.Rule, arguments: Sequence[tuple[Interpretable, int]], *, stops: bool
) -> Interpretable:
    """Evaluate all arguments, then charge by their values before the call, or by its result after it.

    arguments: each with the slot from which the call reads it. stops: an error ends the call at no cost, except that
    of the last argument. Otherwise the arguments after a failed one are evaluated too, as in cel-go.
    """
    slots = [slot for _, slot in arguments]
    invoke = _invoke_then_charge if rule in call_runtime_cost.LATE else _charge_then_invoke

    def evaluate(activation: Activation) -> Any:
        error: errors.EvaluationError | None = None
        for argument, slot in arguments:
            try:
                activation[slot] = argument(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                if stops and slot != slots[-1]:
                    raise
                activation[slot] = raised
                error = error or raised
        given = [activation[slot] for slot in slots]
        if error is not None:
            charge(activation, rule(given, error))
            raise error
        return invoke(call, rule, activation, given)

    return evaluate


def _charge_then_invoke(
    call: Interpretable, rule: call_runtime_cost.Rule, activation: Activation, arguments: Sequence[Any]
) -> Any:
    """Charge first, so that a call that costs too much does not begin. A crash costs nothing."""
    cost = rule(arguments, None)
    charge(activation, cost)
    try:
        return call(activation)
    except errors.AbortError:
        activation[COST] -= cost
        raise


def _invoke_then_charge(
    call: Interpretable, rule: call_runtime_cost.Rule, activation: Activation, arguments: Sequence[Any]
) -> Any:
    try:
        result = call(activation)
    except errors.AbortError:
        raise
    except errors.EvaluationError as raised:
        charge(activation, rule(arguments, raised))
        raise
    charge(activation, rule(arguments, result))
    return result


def stops_at_error(overloads: Sequence[Overload], constants: Sequence[Any]) -> bool:
    """Whether the first argument that fails ends a call: cel-go chooses its overload only at run time."""
    first = overloads[0]
    if len(constants) > 2 or first.name == "format":
        return True
    if first.prepare is not None and first.prepare(constants) is not None:
        return True
    return len(constants) == 2 and len(overloads) > 1 and first.name[0].isalpha()
