"""The daemon's configuration: one YAML document, fields named as in KubeletConfiguration."""

from agent.config.load import load_config
from agent.config.model import Config

__all__ = ["Config", "load_config"]
