"""`ottla cluster`: the brokers of a cluster."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, ExitCode
from ottla.cli.render import Json, json_line
from ottla.client.admin.admin import Admin


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    remote.add_json_argument(parser, "one JSON document: cluster id, controller, brokers and features")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        found = await admin.describe_cluster()
        features = (await admin.describe_features()).finalized
        if options.json:
            brokers: list[Json] = [
                {
                    "broker": each.broker_id,
                    "host": each.address.host,
                    "port": each.address.port,
                    "rack": each.rack,
                    "is_fenced": each.is_fenced,
                }
                for each in found.brokers
            ]
            fields: dict[str, Json] = {
                "cluster_id": found.cluster_id,
                "controller": found.controller_id,
                "brokers": brokers,
                "features": dict[str, Json](features),
            }
            print(json_line(fields))
            return ExitCode.OK
        print(f"cluster {found.cluster_id}")
        for each in found.brokers:
            words = [f"broker {each.broker_id}", str(each.address)]
            words += [f"rack {each.rack}"] if each.rack is not None else []
            words += ["controller"] if each.broker_id == found.controller_id else []
            words += ["fenced"] if each.is_fenced else []
            print(f"  {'  '.join(words)}")
        for name, level in sorted(features.items()):
            print(f"  feature {name}  level {level}")
        return ExitCode.OK

    return remote.run(options, work)


COMMAND: Final = Command(
    "cluster",
    "show the brokers of a cluster",
    "Show the id of a cluster, its brokers, which of them is the controller, and the enabled features.",
    _add_arguments,
    _run,
)
