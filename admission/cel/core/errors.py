"""Errors of CEL: an expression that does not compile (a value), an evaluation that fails (an exception)."""

from dataclasses import dataclass

from admission import errors


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression does not compile. line and column count from 1, and are 0 for an error without a position."""

    text: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}" if self.line else self.message


class EvaluationError(errors.FixError):
    """The evaluation of a program failed. The message is short and worded as cel-go's."""


class AbortError(EvaluationError):
    """A failure that `&&`, `||`, `all` and `exists` do not absorb: the cost limit, or a crash inside cel-go."""


class RefusalError(Exception):
    """The expression is rejected at an offset. Raised inside the compiler only; callers get a CompileError."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message
        super().__init__(message)


def compile_error(text: str, refusal: RefusalError) -> CompileError:
    """Return the refusal as a value, with its line and column."""
    if refusal.offset < 0:
        return CompileError(text, 0, 0, refusal.message)
    before = text[: refusal.offset]
    return CompileError(text, before.count("\n") + 1, refusal.offset - before.rfind("\n"), refusal.message)


def no_such_overload(name: str = "") -> EvaluationError:
    """Return the error of an operation that has no overload for the types of its operands."""
    return EvaluationError(f"no such overload: {name}" if name else "no such overload")


def no_such_key(key: object) -> EvaluationError:
    """Return the error of reading a key that a map lacks."""
    return EvaluationError(f"no such key: {key}")
