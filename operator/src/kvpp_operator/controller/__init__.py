"""The async shell: watches fill the cache, the queue says which deployment is next, reconcile does it."""
