"""Results of suite.py as a table and as one self-contained page."""
import html as markup
import math

WIDTH, ROW, LEFT = 900, 18, 150
INK = {"best": "#2b6cb0", "lost": "#c05621", "grid": "#d0d0d0", "text": "#222"}


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else float("nan")


def best(row):
    return min(row["peers"], key=lambda p: p["us"]) if row["peers"] else None


def best_direct(row):
    direct = [p for p in row["peers"] if p["direct"]]
    return min(direct, key=lambda p: p["us"]) if direct else None


def layer_lines(race):
    yield (f"Layers, {race['threads']} thread(s), {race['cpu']} ({race['target']}), FMA peak "
           f"{race['peak_gflop_s']:.0f} GFLOP/s; {', '.join(race['libraries'])}")
    yield (f"{'layer':<16}{'ours':>11}{'low..high':>19}{'limit':>11}{'of limit':>9}{'best peer':>12}"
           f"  {'which':<22}{'ratio':>7}{'low..high':>13}{'direct':>8}{'|a-e|/|e|':>11}")
    for row in race["rows"]:
        peer, direct = best(row), best_direct(row)
        line = (f"{row['layer']:<16}{row['us']:>9.1f}us{row['low_us']:>9.1f}..{row['high_us']:<8.1f}"
                f"{row['limit_us']:>9.1f}us{100 * row['limit_us'] / row['us']:>8.0f}%")
        if peer:
            line += (f"{peer['us']:>10.1f}us  {peer['name']:<22}{peer['ratio']:>6.2f}x"
                     f"{peer['ratio_low']:>7.2f}..{peer['ratio_high']:<4.2f}{direct['ratio']:>7.2f}x")
        yield line + f"{row['distance_from_f64']:>11.1e}"
    for kind, name in (("C", "C1-C12"), ("D", "D1-D9"), ("G", "products"), ("Ci8", "C2-C12 in bytes"),
                       ("Di8", "D1-D9 in bytes")):
        ratios = [best(r)["ratio"] for r in race["rows"] if best(r) and r["layer"][0] == kind[0]
                  and r["layer"].endswith("i8") == kind.endswith("i8")]
        if ratios:
            yield f"geometric mean of {name}: {geometric_mean(ratios):.3f}x the best peer, least {min(ratios):.2f}x"


def model_lines(race):
    peers = list(race["peers"])
    versions = ", ".join(f"{n} {v}" for n, v in race["peers"].items())
    yield f"Models, {race['machine']}, {race['cores']} cores; {versions}"
    for which in ("default", "tuned"):
        rows = [r for r in race["rows"] if which in r]
        if not rows:
            continue
        yield f"{which + ' schedules':<22}{'T':>2}{'ours':>12}{'limit':>12}{'of limit':>9}" + "".join(f"{p:>24}" for p in peers)
        for r in rows:
            line = f"{r['model']:<22}{r['threads']:>2}{r[which]['us']:>10.0f}us"
            limit = r.get("limit_us")
            line += f"{limit:>10.0f}us{100 * limit / r[which]['us']:>8.0f}%" if limit else f"{'-':>12}{'-':>9}"
            for p in peers:
                ratio = r[which]["ratios"].get(p)
                line += f"{ratio[0]:>10.2f}x ({ratio[1]:.2f}..{ratio[2]:.2f})".rjust(24) if ratio else f"{'-':>24}"
            yield line
        for threads in sorted({r["threads"] for r in rows}):
            mean = {p: geometric_mean([r[which]["ratios"][p][0] for r in rows
                                       if r["threads"] == threads and p in r[which]["ratios"]]) for p in peers}
            yield f"geometric mean, {threads}T  " + ", ".join(f"{p} {m:.3f}x" for p, m in mean.items())
    for name, why in sorted({(n, w) for r in race["rows"] for n, w in r["refused"].items()}):
        yield f"{name} refused a model: {why}"


def text(results):
    lines = [f"# {results['date']}, commit {results['commit']}: {results['command']}",
             "# ratio: the peer's time over ours in the same turn, above 1 we are faster; direct: against peers "
             "without Winograd"]
    for race in results["layers"]:
        lines += ["", *layer_lines(race)]
    if results["models"]:
        lines += ["", *model_lines(results["models"])]
    return "\n".join(lines) + "\n"


def bars(title, rows, label_width=LEFT):
    """rows: (label, ratio, low, high, note). A bar from 1 to the ratio on a logarithmic axis."""
    rows = [r for r in rows if r[1]]
    if not rows:
        return ""
    reach = max(1.0, *(abs(math.log2(r[1])) for r in rows)) * 1.05
    width, half = WIDTH - LEFT + label_width, (WIDTH - LEFT) / 2
    middle, scale = label_width + half, half / reach - 10

    def x(ratio):
        return middle + math.log2(ratio) * scale
    out = [f"<h2>{markup.escape(title)}</h2>",
           f'<svg viewBox="0 0 {width + 200} {ROW * len(rows) + 30}" width="{width + 200}" role="img">']
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        if abs(math.log2(tick)) <= reach:
            out.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{ROW * len(rows)}" '
                       f'stroke="{INK["text"] if tick == 1 else INK["grid"]}"/>'
                       f'<text x="{x(tick):.1f}" y="{ROW * len(rows) + 16}" text-anchor="middle">{tick}x</text>')
    for i, (label, ratio, low, high, note) in enumerate(rows):
        y, ink = i * ROW, INK["best"] if ratio >= 1 else INK["lost"]
        left, right = sorted((x(1), x(ratio)))
        out.append(f'<text x="{label_width - 6}" y="{y + 13}" text-anchor="end">{markup.escape(label)}</text>'
                   f'<rect x="{left:.1f}" y="{y + 3}" width="{max(1, right - left):.1f}" height="{ROW - 6}" fill="{ink}"/>'
                   f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y + 9}" y2="{y + 9}" stroke="{INK["text"]}"/>'
                   f'<text x="{width}" y="{y + 13}">{ratio:.2f}x {markup.escape(note)}</text>')
    return "\n".join([*out, "</svg>"])


def page(title, about, pictures, text_below):
    """One self-contained page; `pictures` are of bars()."""
    return "\n".join([
        f"<!doctype html><meta charset=\"utf-8\"><title>{markup.escape(title)}</title>",
        "<style>body{font:14px sans-serif;margin:2em;color:#222}text{font:12px sans-serif}"
        "pre{font-size:12px;overflow-x:auto}</style>",
        f"<h1>{markup.escape(title)}</h1><p>{markup.escape(about)} Bars: the peer's time over ours in the same turn; to the "
        "right of 1 we are faster. Thin lines: the turns' range.</p>",
        *pictures, f"<pre>{markup.escape(text_below)}</pre>"]) + "\n"


def html(results):
    parts = []
    for race in results["layers"]:
        peers = [(r["layer"], best(r)) for r in race["rows"] if best(r)]
        parts.append(bars(f"Layers against the best peer, {race['threads']} thread(s)",
                          [(n, p["ratio"], p["ratio_low"], p["ratio_high"], p["name"]) for n, p in peers]))
    models = results["models"] or {"rows": [], "peers": []}
    for which in ("default", "tuned"):
        for threads in sorted({r["threads"] for r in models["rows"]}):
            rows = [(f"{r['model']} {p}", *r[which]["ratios"][p], "") for r in models["rows"] if which in r
                    and r["threads"] == threads for p in models["peers"] if p in r[which]["ratios"]]
            parts.append(bars(f"Models, {which} schedules, {threads} thread(s)", rows))
    return page("Tilewright against its peers", f"{results['date']}, commit {results['commit']}.", parts, text(results))
