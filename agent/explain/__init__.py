"""A decision's trace in words: the one place that explains, for the log, `explain` and `describe`."""

from agent.explain.sentences import explain, step_json

__all__ = ["explain", "step_json"]
