"""The machine as a picture, for terminals and browsers: values in, text out.

A `Picture` (who holds what) becomes nested parts, these get places, and the places become SVG or
characters.
"""

from agent.drawing.picture import Holder, Kind, Memory, Picture, bare_memory, bare_picture
from agent.drawing.svg import svg
from agent.drawing.text import text

__all__ = ["Holder", "Kind", "Memory", "Picture", "bare_memory", "bare_picture", "svg", "text"]
