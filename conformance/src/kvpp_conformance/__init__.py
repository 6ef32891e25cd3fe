"""Ask the real engine: vLLM's own argument parser and vLLM Ascend's own KVPP check, on a machine without an NPU.

Half of this package runs in the project's interpreter (`environment`, `generate`, `check`), half inside an environment of
one engine release (`engine`, with standard library and vLLM only). Nothing of it ships with the operator.
"""
