"""An answer NAME==VERSION has to be exactly what a lock file pins NAME to."""

import re
import sys

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)", re.MULTILINE)


def pins(name):
    with open(name, encoding="utf-8") as file:
        found = PIN.findall(file.read())
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


answered, locked = pins("answer.txt"), pins("text.txt")
if len(answered) != 1:
    sys.exit("not one NAME==VERSION")
for package, version in answered.items():
    if locked.get(package) != version:
        sys.exit(f"{package} is locked at {locked.get(package, 'nothing')}, not {version}")
