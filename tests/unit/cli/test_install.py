"""`muster install --print`. That it prints what the chart renders is tested in tests/integration/chart."""

import pytest

from tests.unit.cli.conftest import Muster

IMAGE = "registry.example.org/batch/muster@sha256:" + "a" * 64


def test_install_puts_site_specific_values_into_the_manifests(muster: Muster) -> None:
    done = muster("install", "--print", "--image", IMAGE, "--namespace", "batch", "--ledger-secret", "books")

    assert done.returncode == 0
    assert f"image: {IMAGE}\n" in done.stdout
    assert 'service = "batch/muster-webhook:443"' in done.stdout
    assert "{name: books, key: url}" in done.stdout
    for usual in ("muster-system", "muster-ledger", "registry.example.com"):
        assert usual not in done.stdout


def test_the_prometheus_rules_are_printed_with_the_monitoring_option(muster: Muster) -> None:
    words = ("install", "--print", "--image", IMAGE)

    assert "kind: PrometheusRule" not in muster(*words).stdout
    assert "kind: PrometheusRule" in muster(*words, "--monitoring").stdout


WRONG = {
    "nothing to print": (("--image", IMAGE), "pass --print"),
    "no image": (("--print",), "--image: '' is not an image"),
    "an image that is none": (("--print", "--image", "a b"), "--image: 'a b' is not an image"),
    "a namespace that cannot be": (
        ("--print", "--image", IMAGE, "--namespace", "Batch"),
        "--namespace: 'Batch' is not",
    ),
    "a Secret that cannot be": (("--print", "--image", IMAGE, "--ledger-secret", "a: b"), "--ledger-secret: 'a: b'"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_install_refuses_contradictory_options(muster: Muster, words: tuple[str, ...], said: str) -> None:
    done = muster("install", *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
