"""``kvg version``."""

from kvg import __version__
from kvg.cli.declare import Context
from kvg.flow.records import Version


def version(ctx: Context) -> Version:
    """Print the version."""
    return Version(__version__)


COMMANDS = {"version": version}
EXAMPLES = {
    "version": """
    $ kvg version
    kvg 0.1.0
    $ kvg version --json
    {"type": "version", "schema_version": 1, "version": "0.1.0"}
    """
}
