"""What runs inside an environment of one engine release; imports the standard library, vLLM and vLLM Ascend only.

Start-up order matters and is this: `hardware.pretend(...)`, then anything of vLLM.
"""
