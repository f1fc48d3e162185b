"""Every figure of a summary has to stand in its source, as it is written; and there has to be one.

A figure is a word with a digit in it, of any script, or a number in English words: also how often,
the how-manieth, and how many of a kind. What numbers the clauses of the source is none.
"""

import re
import sys

WORD = re.compile(r"[-+−–]?\.?\w+(?:[.,:/^*×'’-]\w+)*(?:\s?[%‰])?")
CLAUSE = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety dozen
score hundred thousand million billion trillion half quarter single double triple quadruple couple
pair once twice thrice first second third fifth eighth ninth twelfth twentieth thirtieth fortieth
fiftieth sixtieth seventieth eightieth ninetieth twentie thirtie fortie fiftie sixtie seventie
eightie ninetie halve
"""
IN_WORDS = re.compile(rf"\b({'|'.join(NUMBERS.split())})(s|es|th|ths|fold|d)?\b")


def is_figure(word):
    return bool(IN_WORDS.search(word)) or any(letter.isnumeric() for letter in word)


def figures(text):
    return {word for word in WORD.findall(text.lower()) if is_figure(word)}


def read(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


summary, source = figures(read("answer.txt")), figures(CLAUSE.sub("", read("text.txt")))
if not summary:
    sys.exit("the summary has no figure")
if summary - source:
    sys.exit(f"not in the source: {', '.join(sorted(summary - source))}")
