"""Every figure of a summary has to stand in its source, and there has to be one."""

import re
import sys

FIGURE = re.compile(r"\d[\d.,:/-]*\d%?|\d%?")


def figures(name):
    with open(name, encoding="utf-8") as file:
        return set(FIGURE.findall(file.read()))


summary, source = figures("answer.txt"), figures("text.txt")
if not summary:
    sys.exit("the summary has no figure")
if summary - source:
    sys.exit(f"not in the source: {', '.join(sorted(summary - source))}")
