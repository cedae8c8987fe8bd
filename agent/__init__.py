"""numalet: places work on the cores and memory of a Linux machine."""

__version__ = "0.1.0"
