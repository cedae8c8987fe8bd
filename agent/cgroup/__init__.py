"""cgroup v2: values, layout and plans (pure), and the one gate to the kernel (backend)."""
