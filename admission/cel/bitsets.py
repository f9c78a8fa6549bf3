"""What a program says of all devices of a slice, as sets of bits: bit i stands for the device at place i.

The sweep first, where the program has one; then the exact tier for the devices that the sweep left in doubt.
"""

from admission.api.kubernetes.devices import Device, Slice, Version
from admission.cel import programs
from admission.cel.core.errors import EvaluationError
from admission.cel.eval.parse_cache import ParseCache

_PLAIN: frozenset[type] = frozenset({str, int, bool})


def unreadable(slice_: Slice, parse_cache: ParseCache, *, lists: bool) -> int:
    """Return the devices on which every text fails. All values are looked at, once for all texts."""
    result, bit = 0, 1
    amounts, versions = parse_cache.amounts, parse_cache.versions
    for device in slice_.devices:
        for value in device.attributes.values():
            kind = value.__class__
            if kind in _PLAIN or (kind is Version and value in versions):
                continue
            if not _is_readable(device, slice_.driver, parse_cache, lists=lists):
                result |= bit
                break
        else:
            for amount in device.capacity.values():
                if amount.text not in amounts and not _is_readable(device, slice_.driver, parse_cache, lists=lists):
                    result |= bit
                    break
        bit <<= 1
    return result


def _is_readable(device: Device, driver: str, parse_cache: ParseCache, *, lists: bool) -> bool:
    """Build the device: its texts are remembered, so that this is seldom needed."""
    value = programs.device_value(driver, device, lists=lists, parse_cache=parse_cache)
    return isinstance(value, programs.DeviceValue)


class SliceValues:
    """The devices of one slice as the exact tier sees them, built when asked for. Kept while columns are made."""

    def __init__(self, slice_: Slice, parse_cache: ParseCache, *, lists: bool) -> None:
        self.slice = slice_
        self._parse_cache = parse_cache
        self._lists = lists
        self._built: dict[int, programs.DeviceValue | programs.UnreadableDevice] = {}

    def at(self, place: int) -> programs.DeviceValue | programs.UnreadableDevice:
        """Return the device at a place."""
        if place not in self._built:
            device = self.slice.devices[place]
            self._built[place] = programs.device_value(
                self.slice.driver, device, lists=self._lists, parse_cache=self._parse_cache
            )
        return self._built[place]


def evaluate(program: programs.Program, values: SliceValues, bad: int) -> tuple[int, int]:
    """Return the devices on which the program holds, and those on which it fails. bad: those that are unreadable."""
    everyone = (1 << len(values.slice.devices)) - 1
    yes, undecided = 0, everyone
    if program.vector_program is not None:
        yes, undecided = program.vector_program.over(values.slice.devices, values.slice.driver)
    yes, undecided = yes & ~bad, undecided & ~bad
    while undecided:
        bit = undecided & -undecided
        undecided ^= bit
        try:
            if program.evaluate(values.at(bit.bit_length() - 1)) is True:
                yes |= bit
        except EvaluationError:
            bad |= bit
    return yes, bad
