"""What of new settings holds at once, and what waits for a restart."""

import asyncio

from admission.settings import Settings
from admission.settings.live import LiveSettings, ReloadOutcome
from admission.settings.schema import replaced


def test_a_live_setting_takes_effect_at_once_and_is_reported() -> None:
    held, heard = LiveSettings(Settings()), list[str]()
    held.subscribe(lambda now: heard.append(now.log_level))

    taken = held.apply(replaced(Settings(), {"log_level": "debug", "controller.steps": 7}))

    assert taken == ReloadOutcome(changed=("log_level", "controller.steps"), waiting=())
    assert heard == ["info", "debug"]
    assert held.now.controller.steps == 7


def test_the_rest_waits_for_a_restart() -> None:
    held = LiveSettings(Settings())

    taken = held.apply(replaced(Settings(), {"webhook.port": 1, "controller.writes": 7}))

    assert taken == ReloadOutcome(changed=("controller.writes",), waiting=("webhook.port",))
    assert held.now == replaced(Settings(), {"controller.writes": 7})


def test_a_setting_changed_back_no_longer_waits_for_a_restart() -> None:
    held = LiveSettings(Settings())
    held.apply(replaced(Settings(), {"webhook.port": 1}))

    assert held.apply(Settings()) == ReloadOutcome(changed=(), waiting=())


async def test_a_waiting_reader_gets_the_next_change_of_the_settings() -> None:
    held = LiveSettings(Settings())
    waiting = asyncio.create_task(held.change())
    await asyncio.sleep(0)

    held.apply(replaced(Settings(), {"webhook.port": 1}))
    await asyncio.sleep(0)
    assert not waiting.done()
    held.apply(replaced(Settings(), {"log_level": "debug"}))

    assert (await waiting).log_level == "debug"
