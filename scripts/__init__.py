"""Tools of the repository: the demo, the benchmarks."""
