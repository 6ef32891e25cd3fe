"""The only code that talks to an API server: credentials, client, cache of what watches told, apply and prune."""
