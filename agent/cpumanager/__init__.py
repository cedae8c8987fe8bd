"""The CPU manager: which CPUs a container or pod gets (KEP-3570, KEP-2902, KEP-4540, KEP-4800)."""
