"""End to end on real hosts: `make e2e`."""
