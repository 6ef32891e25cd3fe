"""The `kvpp` command line: reads files, prints, exits."""
