"""The KVPP operator: one KVPPDeployment in, validated vLLM Ascend pods out."""
