"""The kubelet's PodResources API: who holds which CPUs and which memory, for other node agents."""
