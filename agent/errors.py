"""The error family: few classes, told apart by what the caller can do."""

from __future__ import annotations


class NumaletError(Exception):
    """Base of every error numalet raises on purpose. ``hint`` tells a person the way out."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(NumaletError):
    """The configuration cannot be used; the operator must change it.

    ``manager`` names the manager that refuses it ("cpu", "memory", "topology"), if one does.
    """

    def __init__(self, message: str, *, manager: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.manager = manager


class AdmissionError(NumaletError):
    """A manager refuses to allocate. ``reason`` is the kubelet's word for machines."""

    def __init__(self, message: str, *, reason: str = "UnexpectedAdmissionError", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class StateError(NumaletError):
    """Stored state cannot be used as it is. ``manager`` names whose it is, if one's."""

    def __init__(self, message: str, *, manager: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.manager = manager


class HostError(NumaletError):
    """The machine lacks something numalet needs (kernel, controller, permission)."""
