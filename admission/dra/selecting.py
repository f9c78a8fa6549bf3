"""Which devices a class and a request select, remembered.

A `Selectors` lives as long as the process and is passed in by whoever plans: answers depend only on CEL texts and on a
slice's version, so they outlive a cycle. Nothing else in `dra` remembers anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.api.devices import Slice
from admission.dra.cel import programs
from admission.dra.cel.failures import CompileError, EvaluationError
from admission.dra.pools import Shelf, Spot

Texts = tuple[str, ...]
"""CEL texts in order: the class's, then the request's."""

Value = programs.DeviceValue | programs.UnreadableDevice

Answer = bool | str
"""Whether all texts hold; the error's text where one fails before another one is false."""


@dataclass(slots=True)
class _Seen:
    """What is known of one version of a slice. The slice is kept, so that its identity stays its own."""

    slice: Slice
    values: dict[int, Value] = field(default_factory=dict)
    answers: dict[Texts, list[Answer | None]] = field(default_factory=dict)


class Selectors:
    """Compiled selectors and their answers."""

    def __init__(self) -> None:
        self._programs: dict[str, programs.Program | CompileError] = {}
        self._seen: dict[object, _Seen] = {}
        self.memory: dict[Any, Any] = {}
        """What `profiles` remembers, by need, the longest unused first."""

    def answer(self, texts: Texts, spot: Spot) -> Answer:
        """Return whether the device satisfies every text, in order; evaluation stops at the first that is false."""
        if not texts:
            return True
        seen = self._of(spot.slice)
        answers = seen.answers.get(texts)
        if answers is None:
            answers = seen.answers[texts] = [None] * len(spot.slice.devices)
        known = answers[spot.at]
        if known is None:
            known = answers[spot.at] = self._evaluate(texts, spot, seen)
        return known

    def keep(self, shelves: Mapping[Any, Shelf]) -> None:
        """Forget every slice that none of these nodes sees. Call it once a cycle."""
        alive = {_version(source) for shelf in shelves.values() for source in shelf.sources}
        self._seen = {key: seen for key, seen in self._seen.items() if key in alive}
        kept = {id(shelf) for shelf in shelves.values()}
        for profiles in self.memory.values():
            profiles.keep(kept)

    def _of(self, slice_: Slice) -> _Seen:
        key = _version(slice_)
        seen = self._seen.get(key)
        if seen is not None and seen.slice is not slice_:
            # Read again: the same version says the same, unless somebody wrote the manifests by hand.
            if seen.slice.devices == slice_.devices:
                seen.slice = slice_
            else:
                seen = None
        if seen is None:
            seen = self._seen[key] = _Seen(slice_)
        return seen

    def _evaluate(self, texts: Texts, spot: Spot, seen: _Seen) -> Answer:
        if spot.at not in seen.values:
            seen.values[spot.at] = programs.device_value(spot.slice.driver, spot.device, lists=True)
        return next(
            (answer for text in texts if (answer := self._one(text, spot, seen.values[spot.at])) is not True), True
        )

    def _one(self, text: str, spot: Spot, value: Value) -> Answer:
        program = self._compiled(text)
        if isinstance(program, CompileError):
            return f"selector {text!r} does not compile: {program}"
        if isinstance(value, programs.UnreadableDevice):
            return f"selector {text!r} fails on device {spot.id}: {value.message}"
        try:
            return program.evaluate(value) is True
        except EvaluationError as error:
            return f"selector {text!r} fails on device {spot.id}: {error}"

    def _compiled(self, text: str) -> programs.Program | CompileError:
        if text not in self._programs:
            self._programs[text] = programs.compile_device(text)
        return self._programs[text]


def joined(*parts: Iterable[str]) -> Texts:
    """Return texts one after the other."""
    return tuple(text for part in parts for text in part)


def _version(slice_: Slice) -> object:
    """Return what names a version of a slice: identity, where it was not read from an API server."""
    version = (slice_.meta.uid, slice_.meta.resource_version)
    return version if all(version) else id(slice_)
