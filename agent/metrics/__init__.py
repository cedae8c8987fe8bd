"""Prometheus metrics: what decisions add up to, what the node is like at a scrape, and the page with both.

``resource_manager_*``, ``topology_manager_*``, ``cpu_manager_*``, ``memory_manager_*``,
``container_aligned_compute_resources_*``, ``admission_rejections_total`` and ``pod_resources_endpoint_*``
have the kubelet's names (without its ``kubelet_`` prefix), labels and moments. Everything else is
numalet's own. docs/monitoring/README.md lists all of them.
"""

from agent.metrics.decisions import DecisionMetrics
from agent.metrics.page import NodeMetrics

__all__ = ["DecisionMetrics", "NodeMetrics"]
