"""Every setting with its type, default, bounds and help, and the rules by which settings combine.

`setting` says what a setting is; `topic`, `broker` and `group` declare them; `properties` reads files of them;
`dynamic` merges what the file, the cluster and the topic say. All of it is pure: texts in, values out.
"""

from ottla.config.setting import INT_MAX, LONG_MAX, Kind, Setting, Update, Value, format_value, unknown_setting
from ottla.config.topic import COMPRESSION_TYPES, CREATE_TIME, LOG_APPEND_TIME, TOPIC_SETTINGS, LogConfig
from ottla.errors import ConfigError

__all__ = [
    "COMPRESSION_TYPES",
    "CREATE_TIME",
    "INT_MAX",
    "LOG_APPEND_TIME",
    "LONG_MAX",
    "TOPIC_SETTINGS",
    "ConfigError",
    "Kind",
    "LogConfig",
    "Setting",
    "Update",
    "Value",
    "format_value",
    "unknown_setting",
]
