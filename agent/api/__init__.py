"""The faces of the daemon: control API, pages, PodResources API."""
