"""Run a query on a database that its writer has not seen, and compare the rows."""

import json
import sqlite3
import sys

database = sqlite3.connect(":memory:")
with open(sys.argv[1], encoding="utf-8") as file:
    database.executescript(file.read())
database.execute("PRAGMA query_only = ON")
with open("answer.txt", encoding="utf-8") as file:
    rows = database.execute(file.read()).fetchall()
with open(sys.argv[2], encoding="utf-8") as file:
    wanted = [tuple(row) for row in json.load(file)]
if rows != wanted:
    sys.exit(f"{len(rows)} rows, not those wanted")
