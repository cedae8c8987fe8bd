"""Support bundles: what is known of a node in one file, to be looked into and replayed elsewhere."""
