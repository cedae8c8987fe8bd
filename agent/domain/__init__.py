"""Values and their invariants; imports nothing but the standard library."""
