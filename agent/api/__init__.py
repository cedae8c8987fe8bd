"""The faces of the daemon: control API."""
