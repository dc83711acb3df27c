"""`ottla configs`: show and change the settings of topics, brokers and groups, and the log levels of a broker."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli import remote
from ottla.cli.arguments import parse_settings
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.cli.topics import config_changes
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType

ALL_BROKERS: Final = ConfigResource(ResourceType.BROKER, "")


def _add_resource_arguments(parser: argparse.ArgumentParser) -> None:
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("--topic", metavar="TOPIC", help="the settings of a topic")
    resource.add_argument("--broker", metavar="ID", type=int, help="the settings of one broker")
    resource.add_argument("--group", metavar="NAME", help="the settings of a consumer group")
    resource.add_argument(
        "--broker-loggers", metavar="ID", type=int, help="the log levels of a running broker: `--add ottla.net=DEBUG`"
    )
    resource.add_argument("--broker-defaults", action="store_true", help="the settings that all brokers share")


def _resource(options: argparse.Namespace) -> ConfigResource:
    if options.broker_defaults:
        return ALL_BROKERS
    if options.broker is not None:
        return ConfigResource(ResourceType.BROKER, str(options.broker))
    if options.broker_loggers is not None:
        return ConfigResource.broker_loggers(options.broker_loggers)
    if options.group is not None:
        return ConfigResource(ResourceType.GROUP, options.group)
    return ConfigResource(ResourceType.TOPIC, options.topic)


# -- describe ----------------------------------------------------------------------------------------------------------


def _add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    _add_resource_arguments(parser)
    parser.add_argument("--all", action="store_true", help="include settings that have their default value")
    parser.add_argument(
        "--verbose", action="store_true", help="explain each setting, and list the values that it overrides"
    )
    remote.add_json_argument(
        parser, "one JSON document per setting: name, value, source and the values that it overrides"
    )
    remote.add_arguments(parser)


def _describe(options: argparse.Namespace) -> ExitCode:
    resource = _resource(options)

    async def work(admin: Admin) -> ExitCode:
        entries = await admin.describe_config(
            resource,
            with_synonyms=options.json or options.verbose,
            with_documentation=options.verbose,
        )
        shown = [
            entry for _, entry in sorted(entries.items()) if options.all or entry.source is not ConfigSource.DEFAULT
        ]
        if options.json:
            for entry in shown:
                print(json_line(_fields(entry)))
        elif options.verbose:
            for entry in shown:
                _explain(entry)
        else:
            rows = ((entry.name, _value_text(entry), _origin(entry)) for entry in shown)
            print_table(
                ("SETTING", "VALUE", "SOURCE"), rows, if_empty=f"{resource}: every setting has its default; see --all"
            )
        return ExitCode.OK

    return remote.run(options, work)


def _explain(entry: ConfigEntry) -> None:
    print(f"{entry.name}={_value_text(entry)}  {_origin(entry)}")
    for synonym in entry.synonyms:
        print(f"    {synonym.name}={synonym.value}  {_source_text(synonym.source)}")
    if entry.documentation:
        print(f"    {entry.documentation}")


def _origin(entry: ConfigEntry) -> str:
    return f"{_source_text(entry.source)}{', read only' if entry.is_read_only else ''}"


def _fields(entry: ConfigEntry) -> dict[str, Json]:
    synonyms: list[Json] = [
        {"name": each.name, "value": each.value, "source": each.source.name.lower()} for each in entry.synonyms
    ]
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "synonyms": synonyms,
    }


def _value_text(entry: ConfigEntry) -> str:
    return "(hidden)" if entry.is_sensitive else "" if entry.value is None else entry.value


def _source_text(source: ConfigSource) -> str:
    return {
        ConfigSource.TOPIC: "set for the topic",
        ConfigSource.GROUP: "set for the group",
        ConfigSource.BROKER: "set for the broker",
        ConfigSource.BROKER_LOGGER: "until the broker stops",
        ConfigSource.BROKER_DEFAULT: "set for all brokers",
        ConfigSource.STATIC: "from the broker's file",
        ConfigSource.DEFAULT: "default",
    }.get(source, source.name.lower())


# -- alter -------------------------------------------------------------------------------------------------------------


def _add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    _add_resource_arguments(parser)
    parser.add_argument("--add", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable")
    parser.add_argument(
        "--delete", action="append", default=[], metavar="KEY", help="remove a value that was set here; repeatable"
    )
    parser.add_argument("--validate-only", action="store_true", help="only check whether it could be changed")
    remote.add_json_argument(parser, "one JSON document: what was changed")
    remote.add_arguments(parser)


def _alter(options: argparse.Namespace) -> ExitCode:
    resource = _resource(options)
    settings = parse_settings(options.add)
    changes = config_changes(settings, options.delete)
    if not changes:
        raise CommandError(ExitCode.USAGE, "no setting to change", "use --add KEY=VALUE or --delete KEY")

    async def work(admin: Admin) -> ExitCode:
        await admin.alter_config(resource, changes, validate_only=options.validate_only)
        if options.json:
            fields: dict[str, Json] = {
                "type": resource.type.name.lower(),
                "name": resource.name,
                "configs": dict[str, Json](settings),
                "deleted_configs": list[Json](options.delete),
                "altered": not options.validate_only,
            }
            print(json_line(fields))
        else:
            print(f"{'would alter' if options.validate_only else 'altered'} {resource}")
        return ExitCode.OK

    return remote.run(options, work)


COMMAND: Final = command_group(
    "configs",
    "show and change settings of topics, brokers and groups",
    "Show and change the settings of topics, brokers and groups, and what a broker logs. They take effect without a "
    "restart.",
    (
        Command(
            "describe",
            "show settings",
            "Show settings and where their values come from. Settings with their default value are shown with --all.",
            _add_describe_arguments,
            _describe,
        ),
        Command(
            "alter",
            "change settings",
            "Change settings. If one of the changes is invalid, none is made.",
            _add_alter_arguments,
            _alter,
        ),
    ),
)
