"""Which names are valid: RFC 1123 as Kubernetes applies it, and uids that are safe in paths.

Each function says what is wrong with a text; the empty string when nothing is.
A pod's uid and a container's name become file and cgroup names; a container cannot be called
``shared.pool``, ``..`` or anything with a slash.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from agent.manifest.problem import shown

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL, re.ASCII)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_UID = re.compile(r"(?!.*\.\.)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253


def bad_label(text: str) -> str:
    """Complain unless ``text`` is a DNS label: container names, namespaces."""
    if len(text) <= _MAX_LABEL and _DNS_LABEL.fullmatch(text):
        return ""
    return (
        f"{shown(text)} is not a DNS label (expected lower-case letters, digits and inner dashes,"
        f' at most {_MAX_LABEL}, e.g. "main-app")'
    )


def bad_subdomain(text: str) -> str:
    """Complain unless ``text`` is a DNS subdomain: pod names."""
    if len(text) <= _MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(text):
        return ""
    return (
        f"{shown(text)} is not a DNS subdomain (expected lower-case letters, digits, inner dashes and dots,"
        f' at most {_MAX_SUBDOMAIN}, e.g. "trading.eu-1")'
    )


def bad_uid(text: str) -> str:
    """Complain unless ``text`` can stand in a file name and a cgroup name."""
    if _UID.fullmatch(text):
        return ""
    return (
        f"{shown(text)} is not a uid (expected letters, digits and inner dots, dashes and underscores,"
        f" no two dots in a row, at most {_MAX_LABEL})"
    )


def bad_qualified_name(text: str) -> str:
    """Complain unless ``text`` is ``name`` or ``domain/name``: label and annotation keys, resources."""
    prefix, slash, name = text.rpartition("/")
    domain_ok = not slash or not bad_subdomain(prefix)
    if domain_ok and len(name) <= _MAX_LABEL and _QUALIFIED.fullmatch(name):
        return ""
    return f'{shown(text)} is not a qualified name (expected e.g. "app" or "example.com/app")'


def bad_label_value(text: str) -> str:
    """Complain unless ``text`` can be the value of a label."""
    if not text or (len(text) <= _MAX_LABEL and _QUALIFIED.fullmatch(text)):
        return ""
    return (
        f"{shown(text)} is not a label value (expected letters, digits and inner -_., at most {_MAX_LABEL})"
    )


def derived_uid(source: str, namespace: str, name: str) -> str:
    """The uid of a manifest that states none: 32 hexadecimal digits, as static pods have.

    It depends on the file's base name, the namespace and the name alone. Unlike the kubelet's
    hash of the whole pod it outlives an edit, so that an edited manifest is the same pod.
    """
    file_name = source.rpartition("/")[2]
    text = f"{file_name}\0{namespace}\0{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
