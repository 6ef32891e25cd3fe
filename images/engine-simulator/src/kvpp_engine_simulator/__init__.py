"""A vLLM Ascend engine without NPUs: the same command line, ports, refusals, API and KV hand-over; no model."""
