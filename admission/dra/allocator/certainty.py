"""Whether the devices that a search found are certain: they rest on no known defect of kube-scheduler.

A kube-scheduler that takes pools and slices in random order (`KnownBugs.unordered`) gives the devices that are
predicted only where the order makes no difference. It makes none if for every request the free devices that match are
all in one slice, whose order is fixed, or are all taken whatever their order.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from admission.dra import compatibility
from admission.dra.allocator.results import DeadEnd, Failure, Match
from admission.dra.compatibility import KnownBugs, SchedulerProfile
from admission.dra.equivalence.device_signature import Answer
from admission.dra.equivalence.node_contents import DeviceGroup, NodeContents, Units
from admission.dra.requests.requests import Mode, Option, ParsedClaim, ParsedRequest, RequestRefusal

SearchFunction = Callable[[KnownBugs], Match | DeadEnd | RequestRefusal]
"""Asks the same search of a kube-scheduler with these defects."""


class CertaintyCheck(NamedTuple):
    """Checks whether the devices that a search found for a pod's claims on a node are certain."""

    claims: Sequence[ParsedClaim]
    contents: NodeContents
    units: Units
    profile: SchedulerProfile

    def uncertainty(self, found: Match, answer: SearchFunction) -> DeadEnd | None:
        """Return why devices are not certain; None if they are."""
        if self.contents.disputed:
            return _disputed(self.contents.disputed)
        trouble = self.contents.trouble(self.profile.known_bugs)
        if self.profile.known_bugs.incomplete_serve and (broken := trouble.incomplete or trouble.invalid):
            return _disputed(broken)
        if unsure := self._unsure_pick(found) or self._unsure_order():
            return unsure
        if self.is_doubtful():
            for known_bugs in (compatibility.AS_OF_1_36, compatibility.FIXED):
                if known_bugs != self.profile.known_bugs and answer(known_bugs) != found:
                    return _disputed("a defect that one of them has")
        return None

    def _unsure_pick(self, found: Match) -> DeadEnd | None:
        """Return which device would have the pod deleted, or is counted wrongly; None if there is none."""
        parsed_requests = self.units.device_signatures.parsed_requests
        for c, picks in enumerate(found.picks):
            for pick in picks:
                parsed = self.claims[c].requests[pick.request].options[pick.option].parsed
                unit = self.units.known[self.contents.units[pick.at]]
                if parsed_requests[parsed] in unit.signature.evicting:
                    return DeadEnd(c, pick.request, 0, frozenset((Failure.EVICTED,)), pick.at, firm=False)
                if self.profile.release.before_1_37 and self._is_inexact(parsed, unit):
                    return _disputed("amounts such as 1.5Gi, which 1.36 adds up wrongly")
        return None

    def is_doubtful(self) -> bool:
        """Return whether a known defect of kube-scheduler could have changed the answer."""
        contents, known = self.contents, self.units.known
        if contents.counter_sets or contents.troubles[0] != contents.troubles[1]:
            return True
        if any(rule.distinct for claim in self.claims for rule in claim.rules):
            return True
        every = any(option.mode is Mode.ALL for claim in self.claims for r in claim.requests for option in r.options)
        if every and any(known[number].use.shares for number in set(contents.units)):
            return True
        if self.profile.known_bugs.all_forgets_alternative and any(
            option.mode is Mode.ALL for claim in self.claims for r in claim.requests for option in r.options[1:]
        ):
            return True
        return any(
            isinstance(value, tuple) and isinstance(value[1], frozenset)
            for number in set(contents.units)
            for value in known[number].signature.values
        )

    def _is_inexact(self, parsed: ParsedRequest, unit: DeviceGroup) -> bool:
        if unit.signature.shared and (parsed.inexact or unit.signature.inexact):
            return True
        return unit.signature.draw is not None and self.contents.counter_sets[unit.counter_set].inexact

    def _unsure_order(self) -> DeadEnd | None:
        """Return the first request for which the order of pools and slices may decide; None if there is none."""
        if not self.profile.known_bugs.unordered:
            return None
        for c, claim in enumerate(self.claims):
            for r, request in enumerate(claim.requests):
                for option in request.options:
                    if self._spans_slices(claim, option):
                        return DeadEnd(c, r, 0, frozenset((Failure.UNORDERED,)), firm=False)
        return None

    def _spans_slices(self, claim: ParsedClaim, option: Option) -> bool:
        """Return whether matching devices are in several slices, and not all of them are taken whatever their order."""
        at = self.units.device_signatures.parsed_requests[option.parsed]
        slices: set[int] = set()
        matching, fails = 0, False
        for number, slice_ in zip(self.contents.units, self.contents.slices, strict=True):
            unit = self.units.known[number]
            answer = unit.signature.answers[at]
            if answer is Answer.NO or answer is Answer.TAINTED or (unit.use.taken and not option.admin):
                continue
            slices.add(slice_)
            matching += 1
            fails = fails or not isinstance(answer, Answer)
        if len(slices) <= 1 or fails:
            return len(slices) > 1
        if option.mode is Mode.ALL:
            # A violated constraint is fatal, a device in use is not: which comes first is a matter of order.
            return bool(claim.rules)
        return matching > option.count


def _disputed(what: str) -> DeadEnd:
    return DeadEnd(0, 0, 0, frozenset((Failure.DISPUTED,)), disputed=what, firm=False)
