"""Settings: the file that is shipped says what the code does, and mistakes are named."""

import json
import re
from typing import Any

import msgspec
import pytest
import yaml

from admission import resources, settings
from admission.errors import MendError
from admission.flow import choosing

SHIPPED = resources.config() / "defaults" / "muster.yaml"


def test_the_shipped_file_holds_every_setting_with_its_default() -> None:
    written = yaml.safe_load(SHIPPED.read_text())

    assert written == json.loads(msgspec.json.encode(settings.Settings()))
    assert settings.read(written) == settings.Settings()


@pytest.mark.parametrize("profile", ["auto", "1.36", 1.37])
def test_a_profile_may_be_written_as_a_number_too(profile: str | float) -> None:
    found = settings.read({"controller": {"profile": profile}}).controller.profile

    assert str(found) == str(profile)


def test_every_release_that_is_known_may_be_chosen() -> None:
    assert settings.PROFILES == choosing.CHOICES


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting": ({"webhok": {}}, "webhok"),
    "an unknown setting in a section": ({"webhook": {"prot": 1}}, r"prot.*\$\.webhook"),
    "a wrong type": ({"webhook": {"port": "many"}}, r"\$\.webhook\.port"),
    "an unknown role": ({"roles": ["cook"]}, "cook.*controller, webhook"),
    "an unknown profile": ({"controller": {"profile": "1.35"}}, r"controller.profile: 1.35: choose auto, 1.36, 1.37"),
    "a fence around no driver": ({"fence": ["GPUs"]}, "fence: 'GPUs' is no name of a DRA driver"),
    "a fence that is named twice": ({"fence": ["a.example", "a.example"]}, "a.example stands there twice"),
    "no worker": ({"webhook": {"workers": 0}}, "webhook.workers: 0: choose a number from 1 to 64"),
    "more workers than anybody has cores": ({"webhook": {"workers": 1000}}, "webhook.workers: 1000: choose a number"),
    "half a worker": ({"webhook": {"workers": 1.5}}, r"\$\.webhook\.workers"),
    "workers of a controller": (
        {"roles": ["controller"], "webhook": {"workers": 2}},
        "webhook.workers: 2: only the role webhook has workers; add it, or leave 1",
    ),
    "no role": ({"roles": []}, "none"),
    "a lease that is renewed too late": ({"lease": {"renew_deadline": 20.0}}, "renew_deadline < duration"),
}


@pytest.mark.parametrize(("values", "named"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(MendError) as caught:
        settings.read(values)

    assert re.search(named, str(caught.value))
