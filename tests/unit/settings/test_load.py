"""Settings come from file, environment and options, in that order, and mistakes are named with their places."""

import operator
import re
from pathlib import Path
from typing import Any

import pytest

from admission import settings
from admission.dra import compatibility
from admission.errors import FixError
from admission.settings import Settings, load
from admission.settings.load import Flag
from tests import tomls


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(values: dict[str, Any] | str) -> Path:
        path = tmp_path / "muster.toml"
        path.write_text(values if isinstance(values, str) else tomls.dumped(values))
        return path

    return write


def test_without_anything_said_all_are_defaults() -> None:
    found = load.read()

    assert found.settings == Settings()
    assert str(found.origin("webhook.port")) == "default"


def test_options_override_variables_and_variables_override_the_file(written: Any) -> None:
    file = written({"controller": {"steps": 1, "writes": 1, "debounce": 1.0}})
    environment = {"MUSTER_CONTROLLER_STEPS": "2", "MUSTER_CONTROLLER_WRITES": "2"}

    found = load.read(file, environment, [Flag("--set", "controller.steps", "3")])

    controller = found.settings.controller
    assert (controller.steps, controller.writes, controller.debounce, controller.resync) == (3, 2, 1.0, 15.0)
    assert [str(found.origin(f"controller.{name}")) for name in ("steps", "writes", "debounce", "resync")] == [
        "--set",
        "MUSTER_CONTROLLER_WRITES",
        f"{file}:5",
        "default",
    ]


def test_a_setting_over_several_lines_has_its_first_line_as_origin(written: Any) -> None:
    file = written('log_level = "debug"\n\nfence = [\n  # ours\n  "a.example",\n]\n[lease]\nname = "x"\n')

    found = load.read(file)

    assert found.settings.fence == ("a.example",)
    assert [str(found.origin(path)) for path in ("fence", "lease.name")] == [f"{file}:3", f"{file}:8"]


TEXTS: dict[str, tuple[str, str, Any]] = {
    "a number": ("webhook.port", "8443", 8443),
    "a fraction": ("controller.debounce", "0.5", 0.5),
    "yes or no": ("install_crds", "false", False),
    "a list": ("roles", "webhook, controller", ("webhook", "controller")),
    "a section in a section": ("usage.prometheus.url", "http://a.example", "http://a.example"),
    "an empty list": ("fence", "", ()),
    "nothing, where that is allowed": ("metrics.port", "", None),
    "a release, which looks like a number": ("controller.profile", "1.37", "1.37"),
}


@pytest.mark.parametrize(("path", "text", "value"), TEXTS.values(), ids=TEXTS)
def test_options_are_read_from_text(path: str, text: str, value: Any) -> None:
    found = load.read(flags=[Flag("--set", path, text)]).settings

    assert operator.attrgetter(path)(found) == value


def test_an_empty_variable_says_nothing() -> None:
    assert load.read(None, {"MUSTER_LEDGER_URL": ""}).settings == Settings()


KUBELET = {
    "MUSTER_WEBHOOK_SERVICE_HOST": "10.96.0.7",
    "MUSTER_WEBHOOK_SERVICE_PORT": "443",
    "MUSTER_WEBHOOK_SERVICE_PORT_WEBHOOK": "443",
    "MUSTER_WEBHOOK_PORT": "tcp://10.96.0.7:443",
    "MUSTER_WEBHOOK_PORT_443_TCP": "tcp://10.96.0.7:443",
    "MUSTER_WEBHOOK_PORT_443_TCP_ADDR": "10.96.0.7",
    "MUSTER_WEBHOOK_PORT_443_TCP_PORT": "443",
}


def test_service_variables_of_kubelet_are_no_settings() -> None:
    assert load.read(None, KUBELET).settings == Settings()


def test_environment_variables_of_other_programs_are_ignored() -> None:
    others = {"MUSTER_CACHE": "/cache", "MUSTER_REGENERATE": "1", "PATH": "/bin", "MUSTER_CONFIG": "muster.toml"}

    assert load.read(None, others).settings == Settings()


def test_helm_writes_whole_numbers_with_a_point(written: Any) -> None:
    found = load.read(written("[controller]\nsteps = 2e+06\nresync = 10.0\n[webhook]\nreviews = 8.0\n")).settings

    assert (found.controller.steps, found.controller.resync, found.webhook.reviews) == (2_000_000, 10.0, 8)


@pytest.mark.parametrize("profile", ["auto", "1.36", 1.37])
def test_a_profile_may_be_written_as_a_number_too(written: Any, profile: str | float) -> None:
    assert str(load.read(written({"controller": {"profile": profile}})).settings.controller.profile) == str(profile)


def test_every_release_that_is_known_may_be_chosen() -> None:
    assert settings.PROFILES == compatibility.CHOICES


WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "an unknown section": ({"webhok": {}}, "muster.toml:2: webhok: .*did you mean webhook?"),
    "an unknown setting": ({"log_levl": "info"}, "muster.toml:1: log_levl: .*did you mean log_level?"),
    "an unknown setting in a section": ({"webhook": {"prot": 1}}, "toml:3: webhook.prot: .*did you mean webhook.port?"),
    "a setting outside its section": ({"steps": 1}, "steps: there is no such setting; did you mean controller.steps?"),
    "a setting of another section": ({"lease": {"resync": 1}}, "did you mean controller.resync?"),
    "something else": ({"xyz": 1}, "xyz: there is no such setting; docs/settings.md lists all"),
    "a section that is a value": ({"webhook": 3}, r"webhook: is a section: write \[webhook\]"),
    "a setting that is a section": ({"log_level": {"a": 1}}, "log_level: .* is not one of debug, info"),
    "a wrong type": ({"webhook": {"port": "many"}}, "webhook.port: 'many' is not a whole number at least 0"),
    "a port that there is not": ({"webhook": {"port": 65536}}, "webhook.port: 65536 is not .* at most 65535"),
    "a number that is none": ("[controller]\nresync = nan\n", "controller.resync: nan is not a number above 0"),
    "a number without end": ("[lease]\nduration = inf\n", "lease.duration: inf is not a number"),
    "yes for a number": ({"webhook": {"port": True}}, "webhook.port: True is not a whole number"),
    "a text for a list": ({"fence": "gpu.example.com"}, "fence: 'gpu.example.com' is not a list of texts"),
    "an unknown level": ({"log_level": "loud"}, "log_level: 'loud' is not one of debug, info, warning, error"),
    "an unknown role": ({"roles": ["cook"]}, "muster.toml:1: roles: cook: .*webhook"),
    "an unknown profile": ({"controller": {"profile": "1.33"}}, "controller.profile: 1.33: choose auto, 1.34, 1.35"),
    "a fence around no driver": ({"fence": ["GPUs"]}, "fence: 'GPUs' is no name of a DRA driver"),
    "an attribute of no driver": ({"metrics": {"uuids": ["uuid"]}}, "metrics.uuids: 'uuid' is not driver=attribute"),
    "two attributes of a driver": (
        {"metrics": {"uuids": ["a.example=uuid", "a.example=serial"]}},
        "metrics.uuids: a.example stands there twice",
    ),
    "a fence that is named twice": ({"fence": ["a.example", "a.example"]}, "a.example stands there twice"),
    "a collector that is no URL": (
        {"tracing": {"endpoint": "collector:4318"}},
        "tracing.endpoint: 'collector:4318' is",
    ),
    "an endpoint of heads that is no URL": ({"heads": {"url": "audit:443"}}, "heads.url: it is no URL; write that"),
    "a Prometheus that is no URL": (
        {"usage": {"prometheus": {"url": "prometheus:9090"}}},
        r"muster.toml:\d+: usage.prometheus.url: it is no URL",
    ),
    "a query of no driver": (
        {"usage": {"prometheus": {"power": ["watts"]}}},
        "usage.prometheus.power: 'watts' is not driver=query",
    ),
    "a time that is no number of steps": (
        {"usage": {"interval": 100}},
        "usage.interval: 100 seconds are not 1 to 10000 times usage.step of 60 seconds",
    ),
    "a token beside a password": (
        {"usage": {"prometheus": {"url": "https://u:p@a.example", "token_file": "/token"}}},
        "usage.prometheus.token_file: the URL has a user",
    ),
    "more than all traces": ({"tracing": {"sampled": 1.5}}, "tracing.sampled: 1.5 is not"),
    "no worker": ({"webhook": {"workers": 0}}, "webhook.workers: 0 is not a whole number at least 1 and at most 64"),
    "more workers than anybody has cores": ({"webhook": {"workers": 1000}}, "webhook.workers: 1000 is not"),
    "half a worker": ({"webhook": {"workers": 1.5}}, "webhook.workers: 1.5 is not a whole number"),
    "workers of a controller": (
        {"roles": ["controller"], "webhook": {"workers": 2}},
        "webhook.workers: 2: only the role webhook has workers; add it, or leave 1",
    ),
    "no role": ({"roles": []}, "none"),
    "a lease that is renewed too late": ({"lease": {"renew_deadline": 20.0}}, "renew_deadline < duration"),
    "a certificate without a key": ({"webhook": {"certificate": "c"}}, "certificate and key .* go together"),
    "a dashboard that others reach over plain HTTP": (
        {"dashboard": {"host": "0.0.0.0"}},  # noqa: S104 - refused
        "dashboard.host: 0.0.0.0 is reached by others, and tokens must not pass over plain HTTP",
    ),
    "a proxy that anybody may pose as": (
        {"dashboard": {"user_header": "X-Forwarded-User"}},
        "dashboard.user_header: anybody could send it",
    ),
    "proxies without a header": ({"dashboard": {"trusted": ["10.0.0.7/32"]}}, "dashboard.user_header: name the header"),
    "proxies that are everybody": (
        {"dashboard": {"user_header": "X-User", "trusted": ["0.0.0.0/0"]}},
        "dashboard.trusted: 0.0.0.0/0 is everybody",
    ),
    "proxies that are no addresses": (
        {"dashboard": {"user_header": "X-User", "trusted": ["proxy"]}},
        "dashboard.trusted: 'proxy' does not appear to be",
    ),
    "client certificates without TLS": (
        {"dashboard": {"user_header": "X-User", "authority": "ca.crt"}},
        "dashboard.authority: client certificates need TLS",
    ),
    "no TOML": ("roles: [webhook]\n", "muster.toml: is not TOML: .*line 1"),
}


@pytest.mark.parametrize(("values", "named"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(written: Any, values: dict[str, Any] | str, named: str) -> None:
    with pytest.raises(FixError) as caught:
        load.read(written(values))

    assert re.search(named, str(caught.value))


WRONG_VARIABLES = {
    "a setting that there is not": ({"MUSTER_LEDGER_ULR": "x"}, "MUSTER_LEDGER_ULR: .*did you mean ledger.url?"),
    "one at the top that is nearly one": ({"MUSTER_LOGLEVEL": "info"}, "MUSTER_LOGLEVEL: .*did you mean log_level?"),
    "a wrong type": ({"MUSTER_WEBHOOK_PORT": "many"}, "MUSTER_WEBHOOK_PORT: webhook.port: 'many' is not"),
}


@pytest.mark.parametrize(("environment", "named"), WRONG_VARIABLES.values(), ids=WRONG_VARIABLES)
def test_a_wrong_variable_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(FixError, match=named):
        load.read(None, environment)


def test_all_mistakes_in_settings_are_named_at_once(written: Any) -> None:
    with pytest.raises(FixError) as caught:
        load.read(written({"xyz": 1, "log_level": 3}), {"MUSTER_WEBHOOK_PROT": "1"})

    assert all(name in str(caught.value) for name in ("xyz", "log_level", "webhook.prot"))


def test_a_password_is_shown_in_no_error_message(written: Any) -> None:
    with pytest.raises(FixError) as caught:
        load.read(None, {"MUSTER_LEDGER_URLS": "postgresql://muster:hush@db/muster"})

    assert "hush" not in str(caught.value)


def test_a_settings_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixError, match=r"muster\.toml: No such file"):
        load.read(tmp_path / "muster.toml")


def test_a_settings_file_in_yaml_is_refused_with_the_expected_format(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("ledger:\n  url: x\n")

    with pytest.raises(FixError, match=r"is not TOML: .*; settings are TOML, as docs/settings.md shows it"):
        load.read(path)
