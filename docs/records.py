"""Records as pages: by what command and machine numbers were measured, how they were drawn, and all of them."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import measured

from normkit.claims import kinds, shelf

MADE = re.compile(r"^(normkit bench .*) --json benchmarks/results/([\w-]+)\.json$", re.MULTILINE)
MENTION = re.compile(r"`benchmarks/results/([\w-]+\.(?:json|md))`")
NAMELESS = {"absent", "folder", "quartiles", "copied_bytes", "least_bytes", "peak_bytes", "seconds", "path"}
SECONDS = {"seconds": "median, ms", "low": "low, ms", "high": "high, ms", "other": "beside, ms", "device": "device, ms"}
DRAWS = (
    "Numbers are those of the claim, one a seed, from 0 on; those of the control have the same seeds. A bed is what "
    "models were trained on, with the hash of what it is: [the beds](../trust.md)."
)


@functools.cache
def names() -> tuple[str, ...]:
    """The records that are pages: files of results, and the claims of each room."""
    tabled = [path.name for path in measured.RESULTS.glob("*.json") if "rows" in json.loads(path.read_text())]
    written = [path.name for path in measured.RESULTS.glob("*.md")]
    claims = [f"claims-{path.stem}.json" for path in shelf.RESULTS.glob("*.json")]
    return tuple(sorted([*written, *tabled, *claims]))


def raw(name: str) -> str:
    """The text of a record."""
    folder = shelf.RESULTS if name.startswith("claims-") and name in names() else measured.RESULTS
    return (folder / name.removeprefix("claims-" if folder is shelf.RESULTS else "")).read_text(encoding="utf-8")


def address(name: str) -> str:
    """Where a record's page is, from the root; of Markdown and JSON that have one name, the JSON has its own."""
    stem, _, kind = name.rpartition(".")
    return f"records/{stem}{'-numbers' if kind == 'json' and f'{stem}.md' in names() else ''}"


def link(name: str, up: str, method: str = "") -> str:
    """A record by its file, as a link to its page, and to a method there."""
    at = f"#{method}" if method and name.endswith(".json") else ""
    shown = name if name.startswith("claims-") else f"benchmarks/results/{name}"
    return f'<a href="{up}{address(name)}.html{at}"><code>{shown}</code></a>'


def mentioned(markdown: str, up: str) -> str:
    """Words in which the name of a record is a link."""
    return MENTION.sub(lambda found: link(found[1], up) if found[1] in names() else found[0], markdown)


def page(name: str) -> str:
    """A record to read."""
    head = "---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n"
    if name.endswith(".md"):
        return head + raw(name)
    record = json.loads(raw(name))
    body = "".join(claims(name, record) if "claims" in record else rows(record))
    return f"{head}# {name.removesuffix('.json')}\n\n{about(name, record)}\n\n{body}\n"


def about(name: str, record: Mapping[str, Any]) -> str:
    """How a record was made, on which machine, and the file itself."""
    lines = [f"`{command}`" for command in commands(name, record)]
    if "claims" in record:
        lines.append(DRAWS)
        machine = {key: value for key, value in record.items() if key != "claims"}
    else:
        machine = {key: record[key] for key in ("date",) if key in record} | record["machine"]
    if "answer" in record:
        said = html.escape(" ".join([f"{record['headline']}.", *record["answer"]]))
        lines += [said, "[A report of the same command](../example/index.html) has the settings, seeds and curves."]
    lines.append(", ".join(f"{key} {value}" for key, value in machine.items() if value is not None) + ".")
    lines.append(f'<a href="../{address(name)}.json" download>The numbers as JSON</a>.')
    return "\n\n".join(lines)


def commands(name: str, record: Mapping[str, Any]) -> list[str]:
    """What measures it again."""
    if "command" in record:
        return [record["command"]]
    if "claims" in record:
        return ["normkit claim NAME --run"]
    readme = (measured.RESULTS.parent / "README.md").read_text(encoding="utf-8")
    return [command for command, file in MADE.findall(readme) if f"{file}.json" == name]


def rows(record: Mapping[str, Any]) -> Iterator[str]:
    """A table a method, of all that was measured of it."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        first = next(row[key] for key in ("method", "variant", "entrant", "kernel") if key in row)
        groups.setdefault(first.partition(":")[0].removeprefix("normkit "), []).extend(flat(row))
    for method, own in groups.items():
        columns = [key for key in dict.fromkeys(key for row in own for key in row) if key != "method"]
        columns = [key for key in columns if any(row.get(key) not in (None, "") for row in own)]
        yield f'<h2 id="{html.escape(method)}">{html.escape(method)}</h2>'
        yield table(columns, ([written(row.get(key)) for key in columns] for row in own))


def flat(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of one number a column: of a race of several, one each."""
    plain = {key: value for key, value in row.items() if not isinstance(value, dict) and key not in NAMELESS}
    times = row.get("seconds")
    if not isinstance(times, dict):
        more = {"seconds": times, "MiB": mebi(row.get("peak_bytes"))}
        yield {SECONDS.get(k, k): in_ms(k, v) for k, v in {**plain, **more}.items() if v is not None}
        return
    for entrant, seconds in times.items():
        low, high = row.get("quartiles", {}).get(entrant, (None, None))
        own = {"entrant": entrant, "seconds": seconds, "low": low, "high": high}
        own["device"] = row.get("device", {}).get(entrant)
        peak = row.get("peak_bytes", {}).get(entrant)
        own |= {"MiB": mebi(peak), "path": row["path"] if entrant == "normkit" else None}
        yield {SECONDS.get(key, key): in_ms(key, value) for key, value in {**own, **plain}.items()}


def in_ms(key: str, value: Any) -> Any:
    """A time in milliseconds; anything else as it is."""
    return 1000 * value if key in SECONDS and value is not None else value


def mebi(size: float | None) -> float | None:
    """Bytes as MiB."""
    return None if size is None else size / 2**20


def claims(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """A table a method, of the draws of its claims."""
    entries = {(entry.method, entry.name): entry.claim for entry in (*shelf.every(), *shelf.beds()) if entry.claim}
    for method, own in record["claims"].items():
        yield f'<h2 id="{html.escape(method)}">{html.escape(method)}</h2>'
        lines = [
            (
                f"{claim}: {entries[method, claim].says}" if (method, claim) in entries else claim,
                kept["wanted"],
                ", ".join(kept["numbers"]),
                ", ".join(kept["control"]),
                str(kept["seconds"]),
                bed(entries.get((method, claim)), kept),
            )
            for claim, kept in own.items()
        ]
        yield table(["claim", "must be", "numbers", "control", "seconds", "bed"], lines)


def bed(claim: kinds.Claim | None, kept: Mapping[str, Any]) -> str:
    """What models were trained on, where any were."""
    return f"{getattr(claim, 'bed', '')} {kept['bed']}".strip() if "bed" in kept else ""


def table(columns: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in HTML, which many rows are quicker in than in Markdown."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def written(value: Any) -> str:
    """A value in a cell.

    >>> written(0.0123456), written(None), written(True), written(5)
    ('0.01235', '', 'yes', '5')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
