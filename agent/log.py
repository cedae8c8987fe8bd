"""Log set-up: one sentence a line; priorities where journald reads them, JSON on request."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Final, TextIO

_PRIORITY: Final = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}

_TEXT: Final = "%(asctime)s %(levelname)-7s %(message)s"


class _JournalFormatter(logging.Formatter):
    """sd-daemon(3) priority prefixes before what another formatter makes; journald adds time and unit."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITY.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in self._inner.format(record).split("\n"))


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """systemd.exec(5): $JOURNAL_STREAM is device:inode of the journal's socket, which we may not write to."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def set_up_logging(level: str, form: str, environ: Mapping[str, str]) -> None:
    """Log to stderr from ``level`` on; ``form`` is "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    journal = _is_journal(sys.stderr, environ)
    plain = logging.Formatter("%(message)s" if journal else _TEXT, "%H:%M:%S")
    formatter = _JsonFormatter() if form == "json" else plain
    handler.setFormatter(_JournalFormatter(formatter) if journal else formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
