"""Colours, as CSS: Okabe and Ito's for what is handed out, quiet ones for the rest, in light and dark.

Nothing is told by colour alone: pods have letters, pools and reservations have patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.drawing.picture import Kind


@dataclass(frozen=True, slots=True)
class Paint:
    """Fill, text upon it, and outline."""

    fill: str
    ink: str
    edge: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of one scheme: ground, boxes from the outermost inwards, and CPUs by kind."""

    ground: str
    ink: str
    quiet: str
    boxes: Mapping[str, Paint]
    cpus: Mapping[Kind, Paint]


_HANDED_OUT: Final = {
    Kind.EXCLUSIVE: Paint("#0072b2", "#ffffff", "#00507d"),
    Kind.POD_SHARED: Paint("#56b4e9", "#000000", "#2f8cc0"),
    Kind.RESERVED: Paint("#e69f00", "#000000", "#a87400"),
    Kind.ISOLATED: Paint("#cc79a7", "#000000", "#98507a"),
}
LIGHT: Final = Theme(
    ground="#ffffff",
    ink="#17202b",
    quiet="#4d5a69",
    boxes={
        "package": Paint("#f3f5f8", "#17202b", "#b4bfcb"),
        "node": Paint("#ffffff", "#17202b", "#8d9bab"),
        "cache": Paint("#f0f3f6", "#4d5a69", "#ccd5de"),
        "core": Paint("#ffffff", "#17202b", "#b4bfcb"),
        "absent": Paint("none", "#4d5a69", "#b4bfcb"),
    },
    cpus={
        **_HANDED_OUT,
        Kind.NODE_SHARED: Paint("#cfeee2", "#0b3326", "#7fbfa6"),
        Kind.ONLINE: Paint("#e2e8ef", "#17202b", "#aab7c5"),
        Kind.OFFLINE: Paint("none", "#4d5a69", "#8d9bab"),
    },
)
DARK: Final = Theme(
    ground="#10151b",
    ink="#e8edf3",
    quiet="#a9b5c2",
    boxes={
        "package": Paint("#171e26", "#e8edf3", "#3a4653"),
        "node": Paint("#10151b", "#e8edf3", "#566372"),
        "cache": Paint("#1a222b", "#a9b5c2", "#323d49"),
        "core": Paint("#10151b", "#e8edf3", "#465361"),
        "absent": Paint("none", "#a9b5c2", "#3a4653"),
    },
    cpus={
        **_HANDED_OUT,
        Kind.NODE_SHARED: Paint("#1d4538", "#dcf7ec", "#3c7a65"),
        Kind.ONLINE: Paint("#35404c", "#e8edf3", "#566372"),
        Kind.OFFLINE: Paint("none", "#a9b5c2", "#566372"),
    },
)


def css_class(kind: Kind) -> str:
    """``exclusive slice`` as a class name."""
    return kind.value.replace(" ", "-")


def stylesheet() -> str:
    """The CSS of a drawing: follows the reader's scheme unless a class ``light`` or ``dark`` is set."""
    dark = "\n".join(_rules(DARK, ":root:not(.light) "))
    return "\n".join(
        (
            ".numalet text{font-family:system-ui,sans-serif}",
            ".numalet .cpu text,.numalet .note{font-variant-numeric:tabular-nums}",
            ".numalet .offline .cell,.numalet .absent{stroke-dasharray:3 2}",
            *_rules(LIGHT, ""),
            f"@media (prefers-color-scheme:dark){{\n{dark}\n}}",
            *_rules(DARK, ".dark "),
        )
    )


def _rules(theme: Theme, within: str) -> Iterator[str]:
    # A drawing that stands alone is itself the root and may itself be .dark: rules are for what is inside.
    yield f"{within}.ground{{fill:{theme.ground}}}"
    yield f"{within}.heading{{fill:{theme.ink}}}{within}.note{{fill:{theme.quiet}}}"
    for name, paint in theme.boxes.items():
        yield f"{within}.{name}{{fill:{paint.fill};stroke:{paint.edge}}}"
    for kind, paint in theme.cpus.items():
        name = css_class(kind)
        yield f"{within}.{name} .cell{{fill:{paint.fill};stroke:{paint.edge}}}{within}.{name} text{{fill:{paint.ink}}}"
