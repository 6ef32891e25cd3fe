"""`kvpp preflight`: whether nodes have what engines need, found out by the engine's own pod with another program in it.

`probe` is that program: one file without imports of ours, which an engine's image may have too (images/engine).
"""
