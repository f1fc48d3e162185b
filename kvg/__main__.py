"""``python -m kvg``: the command line."""

from kvg.cli.main import run

run()
