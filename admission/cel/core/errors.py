"""What goes wrong in CEL: a text that does not compile (a value) and an evaluation that fails (an exception)."""

from dataclasses import dataclass

from admission import errors


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why a text is no program. line and column count from 1; 0 when the error has no place in the text."""

    text: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}" if self.line else self.message


class EvaluationError(errors.FixError):
    """The evaluation of one program on one device failed; the text is short and worded as cel-go's."""


class AbortError(EvaluationError):
    """A failure that `&&`, `||`, `all` and `exists` do not absorb: the cost limit, and what crashes inside cel-go."""


class RefusalError(Exception):
    """Raised inside the compiler only: the text is refused at an offset. Becomes a CompileError."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message
        super().__init__(message)


def compile_error(text: str, refusal: RefusalError) -> CompileError:
    """Return the refusal as a value, with its place in the text."""
    if refusal.offset < 0:
        return CompileError(text, 0, 0, refusal.message)
    before = text[: refusal.offset]
    return CompileError(text, before.count("\n") + 1, refusal.offset - before.rfind("\n"), refusal.message)


def no_such_overload(name: str = "") -> EvaluationError:
    """Return the error of an operation on values of kinds it does not take."""
    return EvaluationError(f"no such overload: {name}" if name else "no such overload")


def no_such_key(key: object) -> EvaluationError:
    """Return the error of reading what a map does not have."""
    return EvaluationError(f"no such key: {key}")
