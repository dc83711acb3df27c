"""Settings that were changed while a broker ran hold from its next start on."""

from __future__ import annotations

from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.testing.scene import Scene, perform

BROKER = 4


def test_a_limit_of_connections_that_was_changed_holds_after_a_restart() -> None:
    async def play(scene: Scene) -> None:
        limit = IncrementalAlterConfigsRequestAlterableConfig(name="max.connections", config_operation=0, value="7")
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=BROKER, resource_name="", configs=[limit]
        )
        answer = await scene.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert not answer.responses[0].error_code
        assert scene.broker.server.limits.connections_max == 7
        await scene.restart()
        assert scene.broker.server.limits.connections_max == 7

    perform(play)
