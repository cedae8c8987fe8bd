"""Checkpoint files: the kubelet's formats (codec) and their durable storage (store)."""
