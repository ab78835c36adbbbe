"""config: turn a YAML file and a few environment variables into frozen settings, or a one-line error.

May import: dphist, core, ports, sources, PyYAML. Reads the named file, the environment and the files of logs.
Start at: ``settings.py`` (all settings), then ``document.py`` (how errors name their place).
Must stay true: a key is used or refused, never ignored; an error names the file, line, key and remedy.
"""

from stream_app.config.document import ConfigError
from stream_app.config.load import load, load_clusters, load_text
from stream_app.config.settings import (
    AlertSettings,
    ApiSettings,
    ClusterSettings,
    KafkaSettings,
    OperatorSettings,
    OutputSettings,
    RedisSettings,
    Settings,
    SourceSettings,
    StreamSettings,
    TopicSettings,
)
from stream_app.config.source import file_identity, log_of
from stream_app.config.storage import REDIS_ALERTS_URL, REDIS_API_URL, REDIS_URL

__all__ = [
    "REDIS_ALERTS_URL",
    "REDIS_API_URL",
    "REDIS_URL",
    "AlertSettings",
    "ApiSettings",
    "ClusterSettings",
    "ConfigError",
    "KafkaSettings",
    "OperatorSettings",
    "OutputSettings",
    "RedisSettings",
    "Settings",
    "SourceSettings",
    "StreamSettings",
    "TopicSettings",
    "file_identity",
    "load",
    "load_clusters",
    "load_text",
    "log_of",
]
