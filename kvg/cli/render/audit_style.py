"""The style and the script of an audit's page."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5b6470; --line: #d8dce2; --back: #fff;
  --card: #f5f6f8; --good: #17713a; --bad: #b3261e; --open: #7a5200; --mark: #2f6fdb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa4b0; --line: #343a43;
  --back: #14171b; --card: #1e2228; --good: #63c98a; --bad: #ff8a80; --open: #e2b458;
  --mark: #7fb0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
header, main { max-width: 1200px; margin: 0 auto; padding: 16px; }
h1 { margin: 0; font-size: 26px; } h2 { font-size: 19px; margin: 28px 0 8px; }
h3 { font-size: 16px; margin: 18px 0 4px; }
pre { font: 12px/1.4 ui-monospace, monospace; overflow-x: auto; max-height: 20em; }
header p { color: var(--soft); margin: 4px 0 0; }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
ul.verdicts { display: flex; flex-wrap: wrap; gap: 8px; padding: 0; list-style: none; }
ul.verdicts li { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 6px 14px; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
#unchecked { border-left: 4px solid var(--open); padding-left: 14px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 6px 8px;
  border-bottom: 1px solid var(--line); }
td { max-width: 26em; min-width: 4em; }
td:first-child { min-width: 8em; overflow-wrap: anywhere; }
td.long { min-width: 18em; }
td.num { min-width: 0; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--mark); }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 4px 10px; margin-bottom: 8px; width: min(100%, 320px); }
svg { width: 100%; max-width: 760px; height: auto; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg rect, svg circle { fill: var(--mark); }
svg line { stroke: var(--line); }
svg polyline { fill: none; stroke: var(--mark); stroke-width: 2; }
@media (max-width: 640px) {
  svg text { font-size: 19px; }
  thead { position: absolute; left: -9999px; }
  table, tbody, tr, td { display: block; }
  tr { border: 1px solid var(--line); border-radius: 8px; margin-bottom: 10px; padding: 4px; }
  tr[hidden] { display: none; }
  td, td.long { border: 0; padding: 3px 8px; min-width: 0; max-width: none; }
  td.num { white-space: normal; }
  td:empty { display: none; }
  td::before { content: attr(data-name) ": "; color: var(--soft); }
}
@media print { input { display: none; } }
"""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 2) continue;
  if (rows.length > 5) {
    const box = document.createElement("input");
    box.type = "search"; box.placeholder = "filter " + rows.length + " rows";
    box.setAttribute("aria-label", "filter");
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(" ").filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
      }
    });
    table.parentElement.before(box);
  }
  const units = {K: 1024, M: 1024 ** 2, G: 1024 ** 3, T: 1024 ** 4};
  const value = text => {
    const found = /^([0-9][0-9,.]*) ?(?:([KMGT]?)i?B)?$/.exec(text);
    return found ? parseFloat(found[1].replaceAll(",", "")) * (units[found[2]] || 1) : null;
  };
  [...table.tHead.rows[0].cells].forEach((cell, at) => {
    const button = document.createElement("button");
    button.textContent = cell.textContent; cell.textContent = ""; cell.append(button);
    let sign = -1;
    button.addEventListener("click", () => {
      sign = -sign;
      cell.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      rows.sort((a, b) => {
        const x = a.cells[at].textContent, y = b.cells[at].textContent;
        const n = value(x), m = value(y);
        return sign * (n !== null && m !== null ? n - m : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
}
"""
