"""What is kept of selectors, and what they cost a review."""

import pytest

from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.syntax import lexer
from admission.device_cel import limits, selector_findings
from admission.device_cel.selector_findings import SelectorFindings
from admission.errors import TooMuchWorkError

MODEL = "device.attributes['gpu.example.com'].model == 'H100'"


def test_a_selector_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    analyze = limits.analyze

    def counting(text: str, **rest: object) -> object:
        compiled.append(text)
        return analyze(text, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(limits, "analyze", counting)
    findings = SelectorFindings()

    first, second = findings.find("1 == 1"), findings.find("1 == 1")

    assert compiled == ["1 == 1"]
    assert first is second


@pytest.mark.parametrize("text", [MODEL, "1 +", "device.nothing", "true"])
def test_a_known_selector_costs_what_an_unknown_one_does(text: str) -> None:
    findings, one, other = SelectorFindings(), WorkBudget(), WorkBudget()

    findings.find(text, one)
    findings.find(text, other)

    assert one.spent == other.spent > 0


def test_a_review_compiles_so_much_and_no_more() -> None:
    findings, work = SelectorFindings(), WorkBudget()

    def compile_many() -> None:
        for at in range(100):
            findings.find(f"{at} == {at}" + " && true" * 300, work)

    with pytest.raises(TooMuchWorkError, match=r"words of CEL.*write shorter expressions"):
        compile_many()


def test_a_selector_that_is_too_long_is_refused_without_being_compiled() -> None:
    work = WorkBudget()

    refusal = SelectorFindings().find("true" + " && true" * 5_000, work).refusal

    assert refusal is not None
    assert "the limit is 10,240" in str(refusal)
    assert work.spent == 0


def test_what_is_kept_is_bounded_and_what_was_asked_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_findings, "MAX_CHARACTERS", 3 * (selector_findings.OVERHEAD + 6))
    findings = SelectorFindings()
    kept = findings.find("1 == 1")
    for at in range(2, 6):
        findings.find(f"{at} == {at}")
        assert findings.find("1 == 1") is kept

    assert findings.characters == selector_findings.MAX_CHARACTERS
    assert findings.find("5 == 5") is findings.find("5 == 5")


def test_what_the_compiler_of_another_release_takes_is_not_refused() -> None:
    assert SelectorFindings().find("device.driver == 'x'").refusal is None
    assert SelectorFindings().find("device.nothing").refusal is not None


def test_a_correction_that_there_was_no_time_for_is_found_the_next_time() -> None:
    findings, work = SelectorFindings(), WorkBudget()
    work.spare = 0

    assert [warning.instead for warning in findings.find(MODEL, work).lint_result.unguarded] == [""]
    assert [warning.instead for warning in findings.find(MODEL).lint_result.unguarded] == [
        f"'model' in device.attributes['gpu.example.com'] && {MODEL}"
    ]
    assert work.spent == lexer.measure(MODEL).tokens * Work.TOKEN.units
