"""The revenue of a shop as a picture."""

from __future__ import annotations

import os

from shop import COUNTRIES, Shop


def draw(shop: Shop, path: str) -> None:
    """Revenue per minute, stacked by country, as one SVG without any library."""
    width, height, gap = 820, 260, 60
    colours = ("#36c", "#4a8", "#e94", "#c4c", "#888")
    minutes = sorted({minute for minute, _ in shop.cents})
    top = max(sum(shop.cents[minute, country] for country in COUNTRIES) for minute in minutes)
    bar = width / len(minutes)
    shapes = []
    for number, minute in enumerate(minutes):
        y = float(gap + height)
        for country, colour in zip(COUNTRIES, colours, strict=True):
            size = shop.cents[minute, country] * height / top
            y -= size
            shapes.append(
                f"<rect x='{gap + number * bar:.1f}' y='{y:.1f}' width='{bar * 0.8:.1f}' height='{size:.1f}' "
                f"fill='{colour}'/>"
            )
        if number % 5 == 0:
            shapes.append(f"<text x='{gap + number * bar:.1f}' y='{gap + height + 18}'>{minute:%H:%M}</text>")
    for number, (country, colour) in enumerate(zip(COUNTRIES, colours, strict=True)):
        x = gap + width + 15
        shapes.append(f"<rect x='{x}' y='{gap + number * 22}' width='14' height='14' fill='{colour}'/>")
        shapes.append(f"<text x='{x + 20}' y='{gap + number * 22 + 12}'>{country}</text>")
    picture = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width + gap * 2 + 40}' height='{height + gap * 2}' "
        "font-family='sans-serif' font-size='13'><rect width='100%' height='100%' fill='white'/>"
        f"<text x='{gap}' y='34' font-size='15'>revenue per minute, up to {top / 100:,.0f}</text>"
        f"<line x1='{gap}' y1='{gap + height}' x2='{gap + width}' y2='{gap + height}' stroke='#888'/>"
        f"{''.join(shapes)}</svg>"
    )
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture)
