"""config: one YAML file and a few environment variables become frozen settings, or one clear line.

May import: core, ports, PyYAML, the standard library. Reads the named file and the environment, nothing else.
Start at: ``settings.py`` (what can be said), then ``document.py`` (how a wrong word is pointed at).
Must stay true: a key is used or refused, never ignored; an error names the file, line, key and remedy.
"""

from stream_app.config.document import ConfigError
from stream_app.config.load import (
    REDIS_ALERTS_URL,
    REDIS_API_URL,
    REDIS_URL,
    declared,
    documented_keys,
    file_identity,
    load,
    load_text,
)
from stream_app.config.settings import (
    AlertSettings,
    ApiSettings,
    OperatorSettings,
    PrivacySettings,
    RedisSettings,
    ReplaySettings,
    Settings,
    SourceSettings,
    StreamSettings,
    TimeSettings,
    TreeSettings,
)

__all__ = [
    "REDIS_ALERTS_URL",
    "REDIS_API_URL",
    "REDIS_URL",
    "AlertSettings",
    "ApiSettings",
    "ConfigError",
    "OperatorSettings",
    "PrivacySettings",
    "RedisSettings",
    "ReplaySettings",
    "Settings",
    "SourceSettings",
    "StreamSettings",
    "TimeSettings",
    "TreeSettings",
    "declared",
    "documented_keys",
    "file_identity",
    "load",
    "load_text",
]
