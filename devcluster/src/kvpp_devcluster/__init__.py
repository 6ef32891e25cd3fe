"""The project's local cluster: real Kubernetes programs on loopback, simulated NPU nodes, real LeaderWorkerSet.

`LocalCluster` (cluster.py) is the door for tests and scripts, `python -m kvpp_devcluster` the one for people.
"""
