"""The router's agent: the only listener of a router pod, and whoever keeps the P/D proxy's members right.

`members`, `slices` and `steps` decide and know no I/O; the rest does what they say.
"""
