"""How settings combine: the topic over the broker over the cluster's default over the file over the built-in default.

`DynamicConfigs` is an immutable image of all of them. It answers what holds for a topic, group or broker, describes it
with the source of every value as `DescribeConfigs` wants it, and judges changes: `alter` and `incremental_alter` return
what the resource would set afterwards, or refuse. Whoever keeps the outcome stores it and makes the next image with
`replaced`; whoever only validates throws it away. Nothing here waits, and no image ever changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import dropwhile
from typing import Any, NamedTuple

from ottla.config.broker import BROKER_SETTINGS, BrokerConfig, inherited_value
from ottla.config.group import GROUP_SETTINGS, GroupConfig
from ottla.config.listener_security import listener_setting
from ottla.config.setting import Kind, Setting, Update, Value, format_value, shortened, unknown_setting
from ottla.config.topic import TOPIC_SETTINGS, LogConfig
from ottla.config.unsupported import is_known_unsupported
from ottla.errors import ApiError, ConfigError, ErrorCode
from ottla.ids import is_valid_topic_name


class ConfigResourceType(IntEnum):
    """What configuration belongs to, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ValueSource(IntEnum):
    """Where a value comes from, by its number on the wire."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class AlterOperation(IntEnum):
    """What `IncrementalAlterConfigs` does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigScope(NamedTuple):
    """A topic, a group, a broker by its number, or with an empty name the default of all brokers."""

    type: int
    name: str


MIN_INSYNC_REPLICAS = "min.insync.replicas"
DEFAULT_BROKER = ConfigScope(ConfigResourceType.BROKER, "")


class SettingChange(NamedTuple):
    """One change of `IncrementalAlterConfigs`; `operation` is a number from the wire, not yet looked at."""

    name: str
    operation: int
    value: str | None = None


class SettingSynonym(NamedTuple):
    """A name under which a value is given, and where; the first of several holds."""

    name: str
    value: str | None
    source: ValueSource


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """What `DescribeConfigs` says of one setting. A sensitive value is None."""

    name: str
    value: str | None
    source: ValueSource
    is_read_only: bool
    is_sensitive: bool
    kind: Kind
    synonyms: tuple[SettingSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ValueSource.DEFAULT


# By which names a broker's setting may be given, the strongest first: `log.roll.ms`, then `log.roll.hours`.
_BROKER_SYNONYMS = {
    name: setting.broker_names[place:]
    for setting in TOPIC_SETTINGS.values()
    for place, name in enumerate(setting.broker_names)
}


@dataclass(frozen=True)
class DynamicConfigs:
    """All settings of a cluster, as the broker `node_id` sees them.

    `static` is what the broker was started with, `overrides` what each resource sets. Overrides that cannot be used,
    such as those of a newer version, count as not set; `problems` names them.
    """

    # Not shown: among them are passwords.
    static: Mapping[str, str] = field(repr=False)
    node_id: int
    overrides: Mapping[ConfigScope, Mapping[str, str]] = field(default_factory=dict, repr=False)
    _topic_configs: dict[str, LogConfig] = field(default_factory=dict, init=False, repr=False, compare=False)

    # -- what holds ----------------------------------------------------------------------------------------------------

    def broker_config(self) -> BrokerConfig:
        """The settings of this broker."""
        return self._broker_config

    def topic_config(self, topic: str) -> LogConfig:
        """The settings of a topic."""
        own = self.overrides_of(ConfigScope(ConfigResourceType.TOPIC, topic))
        if not own:
            return self._broker_config.topic_defaults
        config = self._topic_configs.get(topic)
        if config is None:
            config = self._topic_configs[topic] = _topic_config(own, self._broker_config)
        return config

    def group_config(self, group: str) -> GroupConfig:
        """The settings of a consumer group."""
        return _group_config(self.overrides_of(ConfigScope(ConfigResourceType.GROUP, group)), self._broker_config)

    def overrides_of(self, resource: ConfigScope) -> Mapping[str, str]:
        """What the resource itself sets."""
        return self.overrides.get(resource, {})

    def resources(self, resource_type: int) -> list[str]:
        """The names of the resources of a type that set something."""
        return sorted(name for kind, name in self.overrides if kind == resource_type)

    def problems(self, resource: ConfigScope) -> list[str]:
        """What the resource sets to no effect, and why."""
        return [
            reason
            for name, text in self.overrides_of(resource).items()
            if (reason := _problem(name, text, _table_of(resource))) is not None
        ]

    @cached_property
    def _own_resource(self) -> ConfigScope:
        return ConfigScope(ConfigResourceType.BROKER, str(self.node_id))

    @cached_property
    def _file(self) -> dict[str, str]:
        """What the file sets, as far as we honour it. The number of a broker is known by the time it serves."""
        honoured = {
            name: text
            for name, text in self.static.items()
            if name in BROKER_SETTINGS or listener_setting(name) is not None
        }
        return {**honoured, "broker.id": str(self.node_id), "node.id": str(self.node_id)}

    @cached_property
    def _for_all_brokers(self) -> Mapping[str, str]:
        """What is set for all brokers. `min.insync.replicas` always is: in a cluster with eligible leader replicas
        (KIP-966) all brokers must agree on it, so it is the cluster's and not the file's of each."""
        setting = BROKER_SETTINGS[MIN_INSYNC_REPLICAS]
        unset = self._file.get(setting.name) or format_value(setting.default) or ""
        return {setting.name: unset, **self.overrides_of(DEFAULT_BROKER)}

    @cached_property
    def _broker_config(self) -> BrokerConfig:
        return self._broker_config_with({})

    def _broker_config_with(self, replaced: Mapping[ConfigScope, Mapping[str, str]]) -> BrokerConfig:
        overrides = {**self.overrides, **replaced}
        values: dict[str, Any] = {}
        of_listeners: dict[str, str] = {}
        for layer in (self._file, overrides.get(DEFAULT_BROKER, {}), overrides.get(self._own_resource, {})):
            values |= _usable(layer, BROKER_SETTINGS)
            of_listeners |= {name: text for name, text in layer.items() if listener_setting(name) is not None}
        return BrokerConfig(**values, listener_overrides=of_listeners)

    # -- the next image ------------------------------------------------------------------------------------------------

    def replaced(self, resource: ConfigScope, overrides: Mapping[str, str]) -> DynamicConfigs:
        """The image in which the resource sets just these; with none of them it is forgotten."""
        return self.all_replaced({resource: overrides})

    def all_replaced(self, changes: Mapping[ConfigScope, Mapping[str, str]]) -> DynamicConfigs:
        """The same for several resources together."""
        if not any(overrides or resource in self.overrides for resource, overrides in changes.items()):
            return self
        every = dict(self.overrides)
        for resource, overrides in changes.items():
            every.pop(resource, None)
            if overrides:
                every[resource] = dict(overrides)
        image = DynamicConfigs(self.static, self.node_id, every)
        if all(resource.type != ConfigResourceType.BROKER for resource in changes):
            # What was worked out already holds in the new image too.
            vars(image)["_broker_config"] = self._broker_config
            image._topic_configs.update(self._topic_configs)
            for resource in changes:
                image._topic_configs.pop(resource.name, None)
        return image

    # -- changes -------------------------------------------------------------------------------------------------------

    def alter(self, resource: ConfigScope, settings: Mapping[str, str | None]) -> dict[str, str]:
        """What the resource sets if just these hold (AlterConfigs); ApiError if they cannot."""
        given = {name: _given(name, text) for name, text in settings.items()}
        self._check_can_be_altered(resource)
        table = _table_of(resource)
        if MIN_INSYNC_REPLICAS in given:
            _check_is_for_all(resource, table, given[MIN_INSYNC_REPLICAS])
        return self._checked(resource, given, table)

    def incremental_alter(self, resource: ConfigScope, changes: Collection[SettingChange]) -> dict[str, str]:
        """What the resource sets after these changes (IncrementalAlterConfigs); ApiError if they cannot be made."""
        check_changes(changes)
        self._check_can_be_altered(resource)
        table = _table_of(resource)
        names = {change.name for change in changes}
        changed = dict(self.overrides_of(resource))
        for change in changes:
            if change.name == MIN_INSYNC_REPLICAS:
                _check_is_for_all(resource, table, None if change.operation == AlterOperation.DELETE else change.value)
            if change.operation == AlterOperation.DELETE:
                changed.pop(change.name, None)
            else:
                changed[change.name] = self._changed_value(resource, change, table)
        touched = {name: text for name, text in changed.items() if name in names}
        kept = {name: text for name, text in changed.items() if name not in names}
        return self._checked(resource, touched, table, kept)

    def _changed_value(self, resource: ConfigScope, change: SettingChange, table: Mapping[str, Setting]) -> str:
        text = _given(change.name, change.value)
        if change.operation == AlterOperation.SET:
            return text
        if change.operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{shortened(change.name)}: unknown operation {change.operation}")
        setting = _known(change.name, table)
        if setting.kind is not Kind.LIST:
            operation = AlterOperation(change.operation).name
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"{setting.name}: {operation} works on lists; this is a {setting.kind}"
            )
        # As they stand: what results is checked, and to remove what never was in the list is not an error.
        items = tuple(text.split(","))
        current = _items(self._value_of(resource, setting))
        if change.operation == AlterOperation.APPEND:
            return ",".join(dict.fromkeys(current + items))
        return ",".join(item for item in current if item not in items)

    def _value_of(self, resource: ConfigScope, setting: Setting) -> Value | None:
        """The value that a list is appended to: the resource's own, or what it inherits."""
        own = self.overrides_of(resource).get(setting.name)
        if own is not None:
            return _parsed(setting, own, _refusal_code(resource))
        if resource.type == ConfigResourceType.BROKER:
            inherited: Value | None = getattr(self._broker_config, setting.attribute)
            return inherited
        return inherited_value(setting, self._broker_config)

    def _check_can_be_altered(self, resource: ConfigScope) -> None:
        _table_of(resource)
        if resource.type == ConfigResourceType.BROKER:
            self._check_is_this_broker(resource)

    def _check_is_named(self, resource: ConfigScope) -> None:
        if not resource.name and resource.type != ConfigResourceType.BROKER:
            kind = ConfigResourceType(resource.type).name.lower()
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a {kind} must be named: there are no defaults of all {kind}s")
        if resource.type == ConfigResourceType.TOPIC and not is_valid_topic_name(resource.name):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{shortened(resource.name)} is not a valid topic name")

    def _check_is_this_broker(self, resource: ConfigScope) -> None:
        if resource not in (DEFAULT_BROKER, self._own_resource):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self.node_id} and not {shortened(resource.name)}: ask that one, or name none to mean "
                "all of them",
            )

    def _checked(
        self,
        resource: ConfigScope,
        settings: Mapping[str, str],
        table: Mapping[str, Setting],
        kept: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """The settings in Kafka's way of writing, together with those `kept`, if they make sense together."""
        self._check_is_named(resource)
        altered = dict(kept or {})
        for name, text in settings.items():
            setting = _known(name, table)
            if resource.type == ConfigResourceType.BROKER:
                _check_is_dynamic(setting, resource)
            altered[name] = format_value(_parsed(setting, text, _refusal_code(resource))) or ""
        try:
            self._check_together(resource, altered)
        except ConfigError as error:
            raise ApiError(_refusal_code(resource), str(error)) from None
        return altered

    def _check_together(self, resource: ConfigScope, overrides: Mapping[str, str]) -> None:
        match resource.type:
            case ConfigResourceType.TOPIC:
                _topic_config(overrides, self._broker_config).check()
            case ConfigResourceType.GROUP:
                _group_config(overrides, self._broker_config).check(self._broker_config)
            case ConfigResourceType.BROKER:
                self._broker_config_with({resource: overrides}).check()

    # -- descriptions --------------------------------------------------------------------------------------------------

    def describe(
        self,
        resource: ConfigScope,
        keys: Collection[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> list[DescribedSetting]:
        """The settings of the resource as `DescribeConfigs` answers them: all, or those of `keys` that exist."""
        table = _table_of(resource)
        if resource.type == ConfigResourceType.BROKER:
            self._check_is_this_broker(resource)
        elif resource.type == ConfigResourceType.GROUP and not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a group must be named")
        return [
            self._entry(setting, resource, synonyms, documentation)
            for setting in self._described(resource, table)
            if not keys or setting.name in keys
        ]

    def describe_topic(
        self, topic: str, keys: Collection[str] | None = None, *, synonyms: bool = False, documentation: bool = False
    ) -> list[DescribedSetting]:
        resource = ConfigScope(ConfigResourceType.TOPIC, topic)
        return self.describe(resource, keys, synonyms=synonyms, documentation=documentation)

    def _described(self, resource: ConfigScope, table: Mapping[str, Setting]) -> Iterable[Setting]:
        if resource == DEFAULT_BROKER:
            # The default of all brokers is only what somebody set.
            return [table[name] for name in self._for_all_brokers if name in table]
        overrides = self.overrides_of(resource)
        return [setting for setting in table.values() if not setting.is_internal or setting.name in overrides]

    def _entry(self, setting: Setting, resource: ConfigScope, synonyms: bool, documentation: bool) -> DescribedSetting:
        given = tuple(self._given_for(setting, resource))
        value = given[0].value if given else format_value(setting.default)
        if setting.broker_names and setting.name not in self.overrides_of(resource):
            value = format_value(inherited_value(setting, self._broker_config))
        return DescribedSetting(
            name=setting.name,
            value=None if setting.is_sensitive else value,
            source=given[0].source if given else ValueSource.DEFAULT,
            is_read_only=resource.type == ConfigResourceType.BROKER and not setting.is_dynamic,
            is_sensitive=setting.is_sensitive,
            kind=setting.kind,
            synonyms=given if synonyms else (),
            documentation=setting.documentation if documentation else None,
        )

    def _given_for(self, setting: Setting, resource: ConfigScope) -> Iterator[SettingSynonym]:
        """All that gives the setting a value, the strongest first."""
        match resource.type:
            case ConfigResourceType.TOPIC | ConfigResourceType.GROUP:
                is_topic = resource.type == ConfigResourceType.TOPIC
                source = ValueSource.DYNAMIC_TOPIC if is_topic else ValueSource.DYNAMIC_GROUP
                yield from _synonym(setting, self.overrides_of(resource), source)
                yield from self._given_by_broker(setting.broker_names)
            case _ if resource == DEFAULT_BROKER:
                yield from _synonym(setting, self._for_all_brokers, ValueSource.DYNAMIC_DEFAULT_BROKER)
            case _:
                yield from self._given_by_broker(_BROKER_SYNONYMS.get(setting.name, (setting.name,)))

    def _given_by_broker(self, names: tuple[str, ...]) -> Iterator[SettingSynonym]:
        """What the broker sets under these names, the strongest place first, and there the strongest name.

        Looked up from the strongest name on: a value under a weaker one does not make it set.
        """
        settings = [BROKER_SETTINGS[name] for name in names]
        layers = (
            (self.overrides_of(self._own_resource), ValueSource.DYNAMIC_BROKER),
            (self._for_all_brokers, ValueSource.DYNAMIC_DEFAULT_BROKER),
            (self._file, ValueSource.STATIC_BROKER),
        )
        given = [
            synonym for layer, source in layers for setting in settings for synonym in _synonym(setting, layer, source)
        ]
        given += [
            SettingSynonym(setting.name, format_value(setting.default), ValueSource.DEFAULT)
            for setting in settings
            if setting.default is not None
        ]
        return dropwhile(lambda synonym: synonym.name != names[0], given)


def _synonym(setting: Setting, layer: Mapping[str, str], source: ValueSource) -> Iterator[SettingSynonym]:
    text = layer.get(setting.name)
    if text is not None and _problem(setting.name, text, {setting.name: setting}) is None:
        value = None if setting.is_sensitive else format_value(setting.parse_set(text))
        yield SettingSynonym(setting.name, value, source)


def _topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    return LogConfig.combined(_inherited(TOPIC_SETTINGS, broker) | _usable(overrides, TOPIC_SETTINGS))


def _group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    return GroupConfig(**_inherited(GROUP_SETTINGS, broker) | _usable(overrides, GROUP_SETTINGS))


def _inherited(table: Mapping[str, Setting], broker: BrokerConfig) -> dict[str, Any]:
    return {setting.attribute: inherited_value(setting, broker) for setting in table.values()}


def _usable(overrides: Mapping[str, str], table: Mapping[str, Setting]) -> dict[str, Any]:
    return {
        table[name].attribute: table[name].parse_set(text)
        for name, text in overrides.items()
        if name in table and _problem(name, text, table) is None
    }


def _problem(name: str, text: str, table: Mapping[str, Setting]) -> str | None:
    setting = table.get(name)
    if setting is None and table is BROKER_SETTINGS:
        setting = listener_setting(name)
    if setting is None:
        return unknown_setting(name, table)
    try:
        setting.parse_set(text)
    except ConfigError as error:
        return str(error)
    return None


def _items(value: Value | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _table_of(resource: ConfigScope) -> Mapping[str, Setting]:
    match resource.type:
        case ConfigResourceType.TOPIC:
            return TOPIC_SETTINGS
        case ConfigResourceType.BROKER:
            return BROKER_SETTINGS
        case ConfigResourceType.GROUP:
            return GROUP_SETTINGS
        case ConfigResourceType.BROKER_LOGGER:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "levels of loggers are changed one by one (IncrementalAlterConfigs)"
            )
        case ConfigResourceType.CLIENT_METRICS:
            raise ApiError(ErrorCode.INVALID_REQUEST, "resources of type CLIENT_METRICS have no configuration here")
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown resource type {resource.type}")


def without_effect(resource: ConfigScope) -> set[str]:
    """The names of the settings of such a resource that are kept and change nothing."""
    return {name for name, setting in _table_of(resource).items() if setting.no_effect}


def check_changes(changes: Iterable[SettingChange]) -> None:
    """What holds for changes of any resource; ApiError if a name comes twice or a value is missing."""
    names: set[str] = set()
    for name, operation, value in changes:
        if name in names:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{shortened(name)}: is changed twice in one request")
        if operation != AlterOperation.DELETE:
            _given(name, value)
        names.add(name)


def _given(name: str, text: str | None) -> str:
    if text is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{shortened(name)}: a value is needed; to unset it, delete it")
    return text


def _known(name: str, table: Mapping[str, Setting]) -> Setting:
    if name in table:
        return table[name]
    if table is BROKER_SETTINGS and (of_listener := listener_setting(name)) is not None:
        return of_listener
    if table is BROKER_SETTINGS and is_known_unsupported(name):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{shortened(name)}: this setting of Kafka has no effect here, and changes only with a restart there",
        )
    raise ApiError(ErrorCode.INVALID_CONFIG, unknown_setting(name, table))


def _refusal_code(resource: ConfigScope) -> ErrorCode:
    """What Kafka says of a bad value: it differs between brokers and all others."""
    is_broker = resource.type == ConfigResourceType.BROKER
    return ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG


def _parsed(setting: Setting, text: str, code: ErrorCode) -> Value:
    try:
        return setting.parse(text)
    except ConfigError as error:
        raise ApiError(code, str(error)) from None


def _check_is_for_all(resource: ConfigScope, table: Mapping[str, Setting], text: str | None) -> None:
    """A setting on which all brokers must agree is set for all of them, and always is. `text`: None to remove it."""
    if resource.type != ConfigResourceType.BROKER or (resource == DEFAULT_BROKER and text is not None):
        return
    if text is not None:
        _parsed(table[MIN_INSYNC_REPLICAS], text, _refusal_code(resource))  # the value is looked at first
    reason = "is not removed" if text is None else "is set for all brokers, not for one"
    raise ApiError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS}: {reason}")


def _check_is_dynamic(setting: Setting, resource: ConfigScope) -> None:
    if not setting.is_dynamic:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{setting.name}: changes only with a restart of the broker")
    if setting.update is Update.PER_BROKER and resource == DEFAULT_BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{setting.name}: is set for one broker, not for all")
