"""Everything decided: from an accepted, resolved spec and the world to a plan in which nothing is optional that matters."""
