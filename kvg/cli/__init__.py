"""The command line: the only home of typer, rich, environment variables and exit codes."""
