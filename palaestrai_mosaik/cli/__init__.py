"""The command line: every command parses, calls one function of the package, and prints."""
