"""Every setting with its type, default, bounds and help, and the rules by which settings combine.

`setting` says what a setting is; `topic`, `broker` and `group` declare them; `properties` reads files of them;
`dynamic` merges what the file, the cluster and the topic say. All of it is pure: texts in, values out.
"""

from ottla.config.broker import BROKER_SETTINGS, BrokerConfig
from ottla.config.dynamic import (
    DEFAULT_BROKER,
    AlterOperation,
    ConfigResourceType,
    ConfigScope,
    DescribedSetting,
    DynamicConfigs,
    SettingChange,
    SettingSynonym,
    ValueSource,
)
from ottla.config.group import GROUP_SETTINGS, GroupConfig
from ottla.config.listeners import Endpoint
from ottla.config.properties import Properties, parse_properties
from ottla.config.setting import INT_MAX, LONG_MAX, Kind, Setting, Update, Value, format_value, unknown_setting
from ottla.config.topic import COMPRESSION_TYPES, CREATE_TIME, LOG_APPEND_TIME, TOPIC_SETTINGS, LogConfig
from ottla.config.unsupported import KNOWN_UNSUPPORTED
from ottla.errors import ConfigError

__all__ = [
    "BROKER_SETTINGS",
    "COMPRESSION_TYPES",
    "CREATE_TIME",
    "DEFAULT_BROKER",
    "GROUP_SETTINGS",
    "INT_MAX",
    "KNOWN_UNSUPPORTED",
    "LOG_APPEND_TIME",
    "LONG_MAX",
    "TOPIC_SETTINGS",
    "AlterOperation",
    "BrokerConfig",
    "ConfigError",
    "ConfigResourceType",
    "ConfigScope",
    "DescribedSetting",
    "DynamicConfigs",
    "Endpoint",
    "GroupConfig",
    "Kind",
    "LogConfig",
    "Properties",
    "Setting",
    "SettingChange",
    "SettingSynonym",
    "Update",
    "Value",
    "ValueSource",
    "format_value",
    "parse_properties",
    "unknown_setting",
]
