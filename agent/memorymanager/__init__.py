"""The Memory manager: which NUMA nodes serve a container's memory (KEP-1769)."""
