"""Settings of single groups: set while the broker serves, with an effect on their members. Time is virtual."""

from __future__ import annotations

import asyncio

from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.testing.raw_groups import beat, first_beat
from ottla.testing.scene import Scene, perform

GROUP_KEY = 0


async def alter(scene: Scene, group: str, **settings: str) -> int:
    """The error code; names with underscores in place of dots."""
    entries = [
        IncrementalAlterConfigsRequestAlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name=group, configs=entries
    )
    answer = await scene.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return int(answer.responses[0].error_code)


def test_the_next_heartbeat_and_the_end_of_a_silent_member_follow_the_settings_of_the_group() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic("t")
        for group in ("set", "unset"):
            await scene.find_coordinator(group, GROUP_KEY)
            joined = await scene.ask(first_beat(group, "m", "t"), 1)
            assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 5000)
            epoch = joined.member_epoch
        settings = {"consumer_heartbeat_interval_ms": "7000", "consumer_session_timeout_ms": "60000"}
        assert await alter(scene, "set", **settings) == 0
        for group, interval_ms in (("set", 7000), ("unset", 5000)):
            answer = await scene.ask(beat(group, "m", epoch), 1)
            assert (answer.error_code, answer.heartbeat_interval_ms) == (0, interval_ms)
        await asyncio.sleep(50)
        codes = [(await scene.ask(beat(group, "m", epoch), 1)).error_code for group in ("set", "unset")]
        assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID], "45 s is the default"
        await scene.restart()
        await scene.find_coordinator("set", GROUP_KEY)
        assert (await scene.ask(beat("set", "m", epoch), 1)).heartbeat_interval_ms == 7000
        await asyncio.sleep(61)
        assert (await scene.ask(beat("set", "m", epoch), 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    perform(play)


def test_what_the_broker_does_not_allow_is_refused() -> None:
    async def play(scene: Scene) -> None:
        assert await alter(scene, "g", consumer_session_timeout_ms="1000") == ErrorCode.INVALID_CONFIG
        assert await alter(scene, "g", colour="red") == ErrorCode.INVALID_CONFIG
        assert await alter(scene, "", consumer_session_timeout_ms="50000") == ErrorCode.INVALID_REQUEST

    perform(play)
