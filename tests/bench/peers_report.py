"""Rows of samples and what is said of them: ratios with spread, one table as text, JSON."""
import json
import statistics


class Row:
    """One figure of one model. `ours` and `peer` are samples taken in turns, equally many or, where
    one side failed or is missing, none. `less` is better? `note`: the peer's setting and the like."""

    def __init__(self, model, group, title, unit, less=False, limit=None, note=""):
        self.model, self.group, self.title, self.unit, self.less = model, group, title, unit, less
        self.limit = limit  # (name, the figure that the limit would allow)
        self.note, self.ours, self.peer, self.load = note, [], [], []

    def ratios(self):
        """Ours by theirs, of each pair."""
        return [a / b for a, b in zip(self.ours, self.peer) if b]

    def ratio(self):
        """(median, least, most), or None."""
        r = self.ratios()
        return (statistics.median(r), min(r), max(r)) if r else None

    def shares(self):
        """Of the limit: ours, theirs; None where unknown."""
        return tuple(statistics.median(v) / self.limit[1] if self.limit and v else None
                     for v in (self.ours, self.peer))

    def as_json(self):
        side = lambda v: {"median": statistics.median(v), "samples": v} if v else None
        ratio, shares = self.ratio(), self.shares()
        return {"model": self.model, "group": self.group, "title": self.title, "unit": self.unit,
                "better": "less" if self.less else "more", "tokend": side(self.ours), "peer": side(self.peer),
                "ratio": dict(zip(("median", "least", "most"), ratio), samples=self.ratios()) if ratio else None,
                "limit": {"name": self.limit[0], "value": self.limit[1], "tokend": shares[0],
                          "peer": shares[1]} if self.limit else None,
                "load_average": self.load, "note": self.note}


def number(v):
    if v is None:
        return "–"
    return f"{v:,.0f}" if abs(v) >= 100 else f"{v:.1f}" if abs(v) >= 10 else f"{v:.2f}"


def percent(v):
    return "–" if v is None else f"{100 * v:.0f} %"


def ratio_text(row):
    r = row.ratio()
    if not r:
        return "–", "–"
    return f"{r[0]:.2f}×", f"{r[1]:.2f}–{r[2]:.2f}" if len(row.ratios()) > 1 else "one pair"


def median(v):
    return statistics.median(v) if v else None


def load_line(about):
    return (f"load average {about['load_before']} before, {about['load_after']} after; other programs used "
            f"{percent(about['neighbours'])} of the machine; repeats {about['repeat']} "
            f"(servers {about['server_repeat']})")


def head_lines(about):
    """What must be known to read the figures."""
    cpu = about["cpu"]
    simd = [f for f in cpu["flags"] if f.startswith(("avx", "fma", "f16c", "amx", "asimd", "sve", "i8mm"))]
    lines = [f"{about['date']}  {cpu['model'] or 'unknown processor'}, {cpu['cores']} cores "
             f"({' '.join(simd)}), {about['threads']} threads", load_line(about)]
    lines += [f"{name}: {version}" for name, version in about["programs"].items()]
    for limit in about["limits"]:
        lines.append(f"limit: {limit['what']:5} {number(limit['best']):>7} {limit['unit']:8} {limit['set']}")
    return lines + [f"WARNING: {w}" for w in about["warnings"]]


def text(about, rows, errors):
    lines = head_lines(about)
    columns = ["", "tokend", "peer", "", "ratio", "spread", "of limit", "peer's", ""]
    cells, breaks = [columns], {}
    for row in rows:
        key = (row.model, row.group)
        if key not in breaks.values():
            breaks[len(cells)] = key
        ours, theirs = row.shares()
        limit = f"of {row.limit[0]}" if row.limit else ""
        cells.append([row.title, number(median(row.ours)), number(median(row.peer)),
                      row.unit + (" ↓" if row.less else ""), *ratio_text(row), percent(ours), percent(theirs),
                      "; ".join(filter(None, (limit, row.note)))])
    widths = [max(len(r[i]) for r in cells) for i in range(len(columns))]
    model = None
    for i, cell in enumerate(cells):
        if i in breaks:
            if breaks[i][0] != model:
                model = breaks[i][0]
                lines += ["", f"== {model}"]
            lines.append(f"-- {breaks[i][1]}")
        left = (0, 3, 8)
        lines.append("  ".join(c.ljust(w) if k in left else c.rjust(w)
                               for k, (c, w) in enumerate(zip(cell, widths))).rstrip())
    lines += ["", "ratio: tokend's figure by the peer's, median of the pairs; ↓: less is better"]
    return "\n".join(lines + [f"FAILED: {e}" for e in errors])


def write_json(path, about, rows, errors):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dict(about, rows=[r.as_json() for r in rows], errors=errors), f, indent=1, ensure_ascii=False)
        f.write("\n")
