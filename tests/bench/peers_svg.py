"""The table of peers_report as one picture: a bar a row on a logarithmic axis of "times better
than the peer", with its spread and the figures of both. Self-contained; follows the reader's light
or dark scheme."""
import math
import re
from xml.sax.saxutils import escape

import peers_report as report

WIDTH, LABELS, FIGURES, LINE, LEFT = 1040, 280, 330, 24, 16
STYLE = """
svg{font:12px system-ui,sans-serif}.bg{fill:#fff}text{fill:#1f2328}.dim{fill:#59636e}
.h{font-size:15px;font-weight:600}.t{font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}
.g{stroke:#e4e7eb}.one{stroke:#59636e}.good{fill:#1f6fd1}.bad{fill:#c2410c}.s{stroke:#1f2328;stroke-width:1.5}
@media(prefers-color-scheme:dark){
.bg{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.g{stroke:#2b313a}.one{stroke:#9198a1}
.good{fill:#3d86dd}.bad{fill:#d2622a}.s{stroke:#e6edf3}}
"""


def advantage(row):
    """(median, least, most) of how many times better we are, or None."""
    r = row.ratio()
    if not r or min(r) <= 0:
        return None
    return (1 / r[0], 1 / r[2], 1 / r[1]) if row.less else r


class Axis:
    """Powers of two that hold all values and 1."""

    def __init__(self, rows):
        values = [v for a in map(advantage, rows) if a for v in a] + [0.95, 2.1]
        self.low = math.floor(math.log2(min(values)))
        self.high = math.ceil(math.log2(max(values)))
        self.x0, self.x1 = LEFT + LABELS, WIDTH - FIGURES

    def x(self, value):
        return self.x0 + (self.x1 - self.x0) * (math.log2(value) - self.low) / (self.high - self.low)

    def ticks(self):
        return [2.0 ** i for i in range(self.low, self.high + 1)]


def _label(x, y, value, classes=""):
    value = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", value)
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}">{escape(value)}</text>'


def _row(row, axis, y):
    out = [_label(LEFT, y, row.title)]
    a = advantage(row)
    if a:
        one, end = axis.x(1), axis.x(a[0])
        kind = "good" if a[0] >= 1 else "bad"
        out.append(f'<rect class="{kind}" x="{min(one, end):.1f}" y="{y - 11}" '
                   f'width="{max(abs(end - one), 1):.1f}" height="14" rx="2"/>')
        if len(row.ratios()) > 1:
            out.append(f'<path class="s" d="M{axis.x(a[1]):.1f} {y - 4}H{axis.x(a[2]):.1f}"/>')
        out.append(_label(WIDTH - FIGURES + 58, y, f"{a[0]:.1f}×", "t e"))
    figures = report.number(report.median(row.ours))
    if row.peer:
        figures += " : " + report.number(report.median(row.peer))
    share = row.shares()[0]
    figures += f" {row.unit}" + (f" ({report.percent(share)} of limit)" if share is not None else "")
    out.append(_label(WIDTH - FIGURES + 72, y, figures, "dim"))
    return out


def _axis(axis, top, bottom):
    out = []
    for v in axis.ticks():
        x = axis.x(v)
        out.append(f'<path class="{"one" if v == 1 else "g"}" d="M{x:.1f} {top}V{bottom}"/>')
        out.append(_label(x, top - 6, f"{v:g}×" if v >= 1 else f"1/{1 / v:g}", "m dim"))
    return out


def draw(about, rows):
    """The file's text."""
    axis, body, y, seen = Axis(rows), [], 118, None
    compared = any(r.ratio() for r in rows)
    top = y - 16
    for row in rows:
        if seen != (row.model, row.group):
            y += 10 if seen else 0
            y += LINE
            body.append(_label(LEFT, y - 4, f"{row.model}: {row.group}", "t"))
            seen = (row.model, row.group)
        y += LINE
        body += _row(row, axis, y - 6)
    height = y + 20
    title = "tokend against a peer: times better" if compared else "tokend: measured figures"
    key = "bar: median of the pairs; line: least to most; figures: tokend : peer (tokend's share of the limit)"
    lines = [title, key if compared else "in brackets: the share of the machine's limit",
             f"{about['date']}, {about['cpu']['model']}, {about['cpu']['cores']} cores, {about['threads']} threads"
             + ("; THE MACHINE WAS BUSY" if about["busy"] else ""), report.load_line(about)]
    head = [_label(LEFT, 26, lines[0], "h"), *(_label(LEFT, 30 + 16 * i, t, "dim")
                                              for i, t in enumerate(lines[1:], 1))]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                      f'viewBox="0 0 {WIDTH} {height}" role="img">', f"<title>{escape(title)}</title>",
                      f"<style>{STYLE}</style>", f'<rect class="bg" width="{WIDTH}" height="{height}"/>',
                      *head, *(_axis(axis, top, height - 14) if compared else []), *body, "</svg>", ""])
