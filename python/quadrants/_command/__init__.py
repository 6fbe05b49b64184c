"""The command line, `python -m quadrants`: one module a command."""
