"""The web page for people: who owns which core, why, and what happened. It can change nothing."""

from agent.api.page.face import page_routes

__all__ = ["page_routes"]
