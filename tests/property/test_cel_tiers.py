"""The vectorized evaluation answers as the interpreter does, or not at all; so do programs whose cost is tracked."""

import dataclasses
import functools
from fractions import Fraction

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes import devices
from admission.api.kubernetes.meta import Meta
from admission.cel import bitsets, environment, programs
from admission.cel.eval.parse_cache import ParseCache
from tests.conformance import test_cel

DRIVERS = ("gpu.nvidia.com", "mixed.example.com", "nic.example.com", "d")
NAMES = ("one", "model", "index", "driverVersion", "rel", "productName", "memory", "x")
KEYS = (*NAMES, *(f"{domain}/{name}" for domain in (*DRIVERS, "resource.kubernetes.io") for name in NAMES[:5]))

texts = st.sampled_from(["", "A100", "NVIDIA H100 80GB HBM3", "fish", "1.2.3", "gpu", "3", "true", "日本"])
versions = st.sampled_from(["1.2.3", "570.86.15", "0.0.1", "1.2.3-rc.1", "2.0.0+build", "1.2"]).map(devices.Version)
scalars = st.one_of(texts, versions, st.booleans(), st.integers(-2, 5), st.just(2**63 - 1))
attributes = st.one_of(scalars, scalars, scalars, st.none(), st.lists(texts, max_size=2).map(tuple))
amounts = st.sampled_from(["80Gi", "1", "0", "1500m", "1Pi", "81920Mi", "10G"]).map(
    lambda text: devices.Capacity(value=Fraction(0), text=text)
)
some_devices = st.builds(
    devices.Device,
    name=st.just("device"),
    attributes=st.dictionaries(st.sampled_from(KEYS), attributes, max_size=6),
    capacity=st.dictionaries(st.sampled_from(KEYS), amounts, max_size=3),
    allows_multiple=st.booleans(),
)
slices = st.builds(
    devices.Slice,
    meta=st.just(Meta(name="s")),
    driver=st.sampled_from(DRIVERS),
    pool=st.just("p"),
    generation=st.just(1),
    slice_count=st.just(1),
    devices=st.lists(some_devices, min_size=1, max_size=6).map(tuple),
)

paths = st.one_of(
    st.builds('device.attributes["{}"].{}'.format, st.sampled_from(DRIVERS), st.sampled_from(NAMES)),
    st.builds('device.attributes["{}"]["{}"]'.format, st.sampled_from(DRIVERS), st.sampled_from(NAMES)),
)
capacities = st.builds('device.capacity["{}"].{}'.format, st.sampled_from(DRIVERS), st.sampled_from(NAMES))
written = st.sampled_from(['"A100"', '"1.2.3"', "3", "-1", "true", "false", 'semver("1.2.3")', '"fish"'])
lists = st.sampled_from(['["A100", "fish"]', "[1, 2, 3]", "[]", 'device.attributes["d"]', "device.attributes"])
operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
methods = st.sampled_from(["startsWith", "endsWith", "contains", "matches"])


def _tests(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("cel.bind(a, device.attributes['d'], has(a.one) && {})".format, inner),
    )


expressions = st.recursive(
    st.one_of(
        paths,
        st.builds("{} {} {}".format, paths, operators, written),
        st.builds("{} {} {}".format, written, operators, paths),
        st.builds("{} {} {}".format, paths, operators, paths),
        st.builds("device.driver {} {}".format, operators, written),
        st.builds("has({})".format, paths.filter(lambda path: path[-1] != "]")),
        st.builds("has({})".format, capacities),
        st.builds('{}.{}("{}")'.format, paths, methods, st.sampled_from(["A", "", "00$", "1"])),
        st.builds('{}.find("{}") == "A"'.format, paths, st.sampled_from(["A", "[0-9]+"])),
        st.builds("{} in {}".format, paths, st.sampled_from(['["A100", "fish"]', "[3, 4]", "[true]", '["x"]'])),
        st.builds('"{}" in device.attributes["{}"]'.format, st.sampled_from(NAMES), st.sampled_from(DRIVERS)),
        st.builds('device.attributes["{}"].?{}.hasValue()'.format, st.sampled_from(DRIVERS), st.sampled_from(NAMES)),
        st.builds(
            'device.attributes["{}"][?"{}"].orValue({}) {} {}'.format,
            st.sampled_from(DRIVERS),
            st.sampled_from(NAMES),
            written,
            operators,
            written,
        ),
        st.builds('{}.compareTo(quantity("{}")) {} 0'.format, capacities, st.sampled_from(["80Gi", "1"]), operators),
        st.builds("{}.isGreaterThan({})".format, capacities, capacities),
        st.builds('{} == quantity("81920Mi")'.format, capacities),
        st.builds('{}.{}(semver("1.2.3"))'.format, paths, st.sampled_from(["isLessThan", "isGreaterThan"])),
        st.builds("{}.size() {} 4".format, paths, operators),
        st.builds('{}.lowerAscii() == "fish"'.format, paths),
        st.just("device.allowMultipleAllocations"),
    ),
    _tests,
    max_leaves=5,
)

loops = st.one_of(
    st.builds("{}.{}(x, {})".format, lists, st.sampled_from(["all", "exists", "exists_one"]), expressions),
    st.builds("{}.filter(x, {}).size() == {}".format, lists, expressions, st.integers(0, 2)),
    st.builds("{}.map(x, {}, {}).size() == 1".format, lists, expressions, paths),
    st.builds("{}.transformMap(k, v, {}, v).size() == 1".format, lists, expressions),
    st.builds("{}.transformMapEntry(k, v, {{v: {}}}).size() == 1".format, lists, paths),
    st.builds("{}.exists(x, {} == x)".format, lists, paths),
)


def disagreement(text: str, slice_: devices.Slice, profile: environment.Profile) -> str | None:
    """Return where a vector program differs from the interpreter."""
    parse_cache = ParseCache()
    program = programs.compile_device(text, profile=profile, parse_cache=parse_cache)
    if isinstance(program, programs.CompileError) or program.vector_program is None:
        return None
    bad = bitsets.unreadable(slice_, parse_cache, lists=profile.reads_lists)
    values = bitsets.SliceValues(slice_, parse_cache, lists=profile.reads_lists)
    fast = bitsets.evaluate(program, values, bad)
    exact = bitsets.evaluate(dataclasses.replace(program, vector_program=None), values, 0)
    return None if fast == exact else f"{text} on {slice_}: {fast}, exactly {exact}"


def tracked_disagreement(text: str, slice_: devices.Slice) -> str | None:
    """Return where a program whose cost is tracked differs from a plain one."""
    plain, tracked = programs.compile_device(text), programs.compile_device(text, always_tracks_cost=True)
    if isinstance(plain, programs.CompileError) or isinstance(tracked, programs.CompileError) or plain.tracks_cost:
        return None
    values = bitsets.SliceValues(slice_, ParseCache(), lists=False)
    answers = [bitsets.evaluate(program, values, 0) for program in (plain, tracked)]
    return None if answers[0] == answers[1] else f"{text} on {slice_}: plain {answers[0]}, tracked {answers[1]}"


@settings(deadline=None, max_examples=400)
@given(expressions, slices, st.sampled_from([environment.Profile(), environment.Profile(release=37)]))
def test_generated_selectors_have_the_same_value_in_all_tiers(
    text: str, slice_: devices.Slice, profile: environment.Profile
) -> None:
    assert disagreement(text, slice_, profile) is None


@functools.cache
def recorded() -> list[str]:
    """The corpus' expressions, without those that take long."""
    return sorted({record["expression"] for record in test_cel.records() if "cost" not in record["touches"]})


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_recorded_selectors_have_the_same_value_in_all_tiers(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(recorded()))

    assert disagreement(text, data.draw(slices), environment.Profile()) is None


@settings(deadline=None, max_examples=200)
@given(st.one_of(expressions, loops), slices)
def test_generated_programs_have_the_same_value_with_cost_tracking(text: str, slice_: devices.Slice) -> None:
    assert tracked_disagreement(text, slice_) is None


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_recorded_programs_have_the_same_value_with_cost_tracking(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(recorded()))

    assert tracked_disagreement(text, data.draw(slices)) is None


def test_many_selectors_are_vectorized() -> None:
    """Or the tests above would compare nothing."""
    parse_cache = ParseCache()
    compiled = [programs.compile_device(text, parse_cache=parse_cache) for text in recorded()[::5]]
    vectorized = [program for program in compiled if isinstance(program, programs.Program) and program.vector_program]

    assert len(vectorized) > len(compiled) / 8
