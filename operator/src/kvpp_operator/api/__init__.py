"""The custom resource as its user sees it."""
