"""Replaying recorded decisions (conformance vectors) and comparing the answers."""
