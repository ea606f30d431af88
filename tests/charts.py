"""Charts of the pages: curves with their names beside them, as SVG."""

import math

COLOURS = ("#2f7ed8", "#d98a3d", "#3d9a5b", "#a05fb5", "#8c8c8c")
GREY = "#808080"
LEFT, RIGHT, TOP, BOTTOM = 70, 450, 20, 300
STYLE = (
    "text { font: 13px sans-serif; fill: #808080 } .grid { stroke: #80808040 } "
    ".level { stroke: #808080; stroke-dasharray: 5 4 }"
)


class Axis:
    """From the first tick to the last or to `end`, by powers of two if asked for."""

    def __init__(self, ticks, end=None, *, powers=False):
        self.ticks = ticks
        self._scale = math.log2 if powers else float
        self._first, self._last = self._scale(ticks[0]), self._scale(end or ticks[-1])

    def share(self, value):
        return (self._scale(value) - self._first) / (self._last - self._first)


def chart(lines, across, upwards, note, title, *, levels=None, dots=None):
    """Curves `{name: [(x, y)]}`, dashed levels `{name: y}`, dots `{name: (x, y)}`.

    A dot whose name goes on from a curve's with a comma has its colour.
    """
    parts, labels = [], []
    colours = dict(zip(lines, COLOURS, strict=False))

    def place(x, y):
        down = BOTTOM + (TOP - BOTTOM) * upwards.share(y)
        return LEFT + (RIGHT - LEFT) * across.share(x), down

    def level(value, kind):
        _, y = place(across.ticks[0], value)
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="{kind}"/>')
        return y

    for value in upwards.ticks:
        y = level(value, "grid")
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in across.ticks:
        x, _ = place(value, upwards.ticks[0])
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{value:,}</text>')
    for name, value in (levels or {}).items():
        labels.append((level(value, "level"), name, GREY))
    for name, curve in lines.items():
        colour = colours[name]
        points = [place(x, y) for x, y in curve if y <= upwards.ticks[-1]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        labels.append((points[-1][1], name, colour))
    for name, point in (dots or {}).items():
        x, y = place(*point)
        colour = colours.get(name.partition(",")[0], COLOURS[1])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        labels.append((y, name, colour))
    below = 0.0
    for y, name, colour in sorted(labels):
        below = max(y + 4, below + 15)
        parts.append(f'<text x="{RIGHT + 8}" y="{below:.1f}" style="fill: {colour}">{name}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 350" role="img" '
        f'aria-label="{title}">\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + f'\n<text x="{LEFT}" y="{BOTTOM + 42}">{note}</text>\n</svg>\n'
    )
