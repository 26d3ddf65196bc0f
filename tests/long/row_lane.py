"""The lanes made of parts, each of named rows: a row is run, and written to tests/results/<lane>.json when it is done. A run
continues where an earlier one of the same commit ended; --again measures rows anew."""

import argparse
import json
import sys
import time

from lane import ROOT, commit


def chosen(parts, words):
    """(part, row) for each of the words; all of them without any."""
    every = [(part, row) for part, (rows, _) in parts.items() for row in rows]
    found = [(part, row) for part, row in every if not words or part in words or f"{part}:{row}" in words]
    assert len(found) > 0, f"expected parts out of {', '.join(parts)}, or one of their rows, found {' '.join(words)}"
    return found


def earlier(path, lane):
    result = json.loads(path.read_text()) if path.exists() else {}
    return result if "parts" in result else {"lane": lane, "parts": {}}


def measured(function, name, flags):
    """The row; one that says why where a command failed."""
    try:
        return function(name, flags)
    except AssertionError as error:
        return {"good": False, "failure": str(error)[-5000:]}


def main(lane, description, parts, add_flags, prepare=lambda: None):
    """`parts`: name → (names of its rows, function of a row's name and the flags). Exits with 1 when a row is not good."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART[:ROW]")
    parser.add_argument("--again", action="store_true")
    add_flags(parser)
    flags = parser.parse_args()
    rows = chosen(parts, flags.parts)
    prepare()
    path = ROOT / "tests" / "results" / f"{lane}.json"
    result, failed, here = earlier(path, lane), 0, commit(path)
    for part, name in rows:
        of_part = result["parts"].setdefault(part, {})
        kept = of_part.get(name, {})
        if kept.get("good") and kept["commit"] == here and not flags.again:
            print(f"{part} {name}: ok before", flush=True)
            continue
        start = time.monotonic()
        row = measured(parts[part][1], name, flags)
        row.update(commit=here, date=time.strftime("%Y-%m-%d", time.gmtime()), seconds=round(time.monotonic() - start, 1))
        of_part[name] = row
        failed += not row["good"]
        print(f"{part} {name}: {'ok' if row['good'] else 'FAILED'} in {row['seconds']} s", flush=True)
        path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
