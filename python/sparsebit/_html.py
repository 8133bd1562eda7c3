"""Small tables for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Sequence

SHOWN = 60  # rows of a table


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return escape(str(value))


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]],
          title: str = "") -> str:
    rows = list(rows)
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in row) + "</tr>"
                   for row in rows[:SHOWN])
    more = (f"<p>and {len(rows) - SHOWN} more</p>" if len(rows) > SHOWN else "")
    caption = f"<p><b>{escape(title)}</b></p>" if title else ""
    return (f"{caption}<table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}")


def facts(title: str, pairs: Iterable[tuple[str, Any]]) -> str:
    return table(("", ""), pairs, title)
