"""Interrupts and the CPUs that serve them: https://docs.kernel.org/core-api/irq/irq-affinity.html"""
