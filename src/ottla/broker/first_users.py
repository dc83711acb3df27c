"""The first users of SCRAM: those whose passwords stand in the settings are stored at the start, unless they exist.

    listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \
        required user_admin="a password";

So a cluster can be reached by somebody who then adds the others. A password that was changed later is left alone.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from functools import partial

from ottla.broker.scram_users import ScramChange, ScramUsers
from ottla.config.listener_security import ListenerSecurity
from ottla.runtime.offload import Offload
from ottla.security.scram import BY_SASL_NAME, SALT_BYTES, derive

logger = logging.getLogger(__name__)


async def store_first_users(listeners: Iterable[ListenerSecurity], users: ScramUsers, offload: Offload) -> None:
    for listener in listeners:
        for mechanism in listener.mechanisms.values():
            scram = BY_SASL_NAME.get(mechanism.name)
            if scram is None or mechanism.jaas is None:
                continue
            for name, password in mechanism.jaas.users.items():
                if await users.credential(name, scram) is None:
                    work = partial(derive, scram, password, secrets.token_bytes(SALT_BYTES))
                    await users.change(name, [ScramChange(scram, await offload.computed(work))])
                    logger.info("user %s was created for %s", name, mechanism.name)
