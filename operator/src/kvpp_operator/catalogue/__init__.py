"""Facts about models and chips, each with its source."""
