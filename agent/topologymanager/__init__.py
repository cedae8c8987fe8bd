"""The Topology manager: merging hints of all resources into one placement (KEP-693)."""
