"""Tables of records, in Markdown that is also readable on a terminal."""

import dataclasses
import math

import numpy as np

LIBRARIES = ("jaxdyn", "empty", "Pinocchio", "frax", "mjx", "adam", "brax")


@dataclasses.dataclass
class Table:
    """A table with a title, a header, rows of strings, and notes below it."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = dataclasses.field(default_factory=list)
    left: int = 1  # number of left-aligned columns

    def text(self) -> str:
        cells = [self.header, *self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        line = lambda row: (
            "| "
            + " | ".join(
                (x.ljust(w) if i < self.left else x.rjust(w)) for i, (x, w) in enumerate(zip(row, widths, strict=True))
            )
            + " |"
        )
        rule = (
            "|" + "|".join("-" * (w + 2) if i < self.left else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
        )
        body = "\n".join([line(self.header), rule, *(line(row) for row in self.rows)])
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"**{self.title}**\n\n{body}\n" + (notes + "\n" if notes else "")


def tables(part: str, records: list[dict]) -> list[Table]:
    """The tables of one part, including a table of what could not be measured."""
    measured = [r for r in records if not r.get("reason")]
    make = {"throughput": _throughput, "trees": _throughput, "batches": _batches}.get(part) or globals()[f"_{part}"]
    found = make(measured) if measured else []
    reasons = list(dict.fromkeys(_reason(r) for r in records if r.get("reason")))
    if reasons:
        found.append(Table("Not measured", ["what", "why"], [list(x) for x in reasons], left=2))
    return found


def micro(seconds: float | None) -> str:
    """A time in microseconds with three significant figures."""
    return "-" if seconds is None else figures(1e6 * seconds)


def figures(x: float | None, digits: int = 3) -> str:
    """A number with `digits` significant figures, without an exponent."""
    if x is None or not math.isfinite(x):
        return "-"
    if x == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(x)))
    return f"{round(x, places):,.{max(places, 0)}f}".replace(",", " ")


def share(record: dict | None) -> str:
    """The share of the machine's peak that a measurement reaches, in percent."""
    return "-" if not record or not record.get("floor") else f"{100 * record['floor'] / record['seconds']:.0f} %"


def _reason(record: dict) -> tuple[str, str]:
    keys = ("robot", "quantity", "library", "variant", "precision")
    what = [str(record[key]) for key in keys if record.get(key)]
    what += [f"batch {record['batch']}"] if record.get("batch") else []
    return ", ".join(what), record["reason"].replace("|", "/")


def _groups(records: list[dict], *keys: str) -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for record in records:
        found.setdefault(tuple(record.get(key) for key in keys), []).append(record)
    return found


def _by_variant(records: list[dict]) -> dict[tuple, dict]:
    return {(r["library"], r.get("variant", "")): r for r in records}


def _columns(records: list[dict]) -> list[tuple]:
    """All pairs (library, variant) in the records, with jaxdyn first."""
    found = dict.fromkeys((r["library"], r.get("variant", "")) for r in records)
    return sorted(found, key=lambda key: LIBRARIES.index(key[0]))


def _worst(records: list[dict], library: str = "jaxdyn") -> str:
    errors = [r["error"] for r in records if r["library"] == library and r.get("error") is not None]
    return f"{max(errors):.0e}" if errors else "-"


def _notes(records: list[dict], batch: int | None = None) -> list[str]:
    found = []
    for r in records:
        parts = [r["remark"]] if r.get("remark") else []
        if batch and r["batch"] < batch and r["library"] != "Pinocchio":
            parts.append(f"{r['batch']} states")
        if parts:
            found.append(f"{r['library']}, {r['label']}: {', '.join(parts)}")
    return list(dict.fromkeys(found))


def _throughput(records: list[dict]) -> list[Table]:
    found = []
    for (robot, precision), group in _groups(records, "robot", "precision").items():
        columns = _columns(group)
        header = ["us per evaluation"]
        for library, variant in columns:
            single = variant == "1 device" and library not in ("jaxdyn", "Pinocchio")
            header += [library if single else f"{library}, {variant}"]
            header += ["floor / time"] if library == "jaxdyn" else []
        header += ["best other / best jaxdyn", "largest relative difference"]
        rows = []
        for (label,), quantity in _groups(group, "label").items():
            of = _by_variant(quantity)
            row = [label]
            for key in columns:
                row.append(micro(of[key]["seconds"] if key in of else None))
                row += [share(of.get(key))] if key[0] == "jaxdyn" else []
            ours, others = (
                [r["seconds"] for r in quantity if (r["library"] == "jaxdyn") == own] for own in (True, False)
            )
            row.append(figures(min(others) / min(ours)) if ours and others else "-")
            rows.append([*row, _worst(quantity)])
        batch = max(r["batch"] for r in group)
        title = f"{robot}, {group[0].get('nv')} velocities, {precision}, {batch} states (Pinocchio in float64)"
        found.append(Table(title, header, rows, _notes(group, batch)))
    return found


def _latency(records: list[dict]) -> list[Table]:
    found = []
    for (robot, precision, dispatch), group in _groups(records, "robot", "precision", "dispatch").items():
        others = [key for key in _columns(group) if key[0] not in ("jaxdyn", "empty")]
        variants = ("robot closed over", "robot an argument")
        header = ["us per call"] + [x for v in variants for x in (v, "empty", "ratio")] + [key[0] for key in others]
        rows = []
        for (label,), quantity in _groups(group, "label").items():
            of = {key: r["seconds"] for key, r in _by_variant(quantity).items()}
            row = [label]
            for variant in variants:
                ours, empty = of.get(("jaxdyn", variant)), of.get(("empty", variant))
                row += [micro(ours), micro(empty), figures(ours / empty, 2) if ours and empty else "-"]
            rows.append([*row, *(micro(of.get(key)) for key in others)])
        title = f"{robot}, {precision}, one call, programs on {dispatch.replace('JAX', 'another thread: JAX')}"
        title = title.replace("on calling thread", "on the calling thread")
        found.append(Table(title, header, rows, _notes(group)))
    return found


def _batches(records: list[dict]) -> list[Table]:
    found = []
    for (robot, label, precision), group in _groups(records, "robot", "label", "precision").items():
        columns = _columns(group)
        header = ["batch size"]
        for library, variant in columns:
            header += [f"{library}, {variant}"] + (["floor / time"] if library == "jaxdyn" else [])
        rows = []
        for (batch,), at in sorted(_groups(group, "batch").items()):
            of, row = _by_variant(at), [f"{batch}"]
            for key in columns:
                row.append(micro(of[key]["seconds"] if key in of else None))
                row += [share(of.get(key))] if key[0] == "jaxdyn" else []
            rows.append(row)
        title = f"{robot}, {label}, {precision}, us per evaluation"
        found.append(Table(title, header, rows, _notes(group)))
    return found


def _scaling(records: list[dict]) -> list[Table]:
    found = []
    for (shape, label, precision), group in _groups(records, "robot", "label", "precision").items():
        of = {(r["library"], r["n"]): r for r in group}
        sizes = sorted({r["n"] for r in group})
        rows = []
        for n in sizes:
            ours, theirs = of.get(("jaxdyn", n), {}), of.get(("Pinocchio", n), {})
            error = f"{ours['error']:.0e}" if ours.get("error") is not None else "-"
            times = [micro(ours.get("seconds")), micro(theirs.get("seconds")), figures(ours.get("compile_seconds"), 2)]
            rows.append([str(n), *times, error])
        slopes = [_slope([of[key, n] for n in sizes if n >= 20 and (key, n) in of]) for key in ("jaxdyn", "Pinocchio")]
        rows.append(["slope, n >= 20", *slopes, "-", "-"])
        header = ["joints", "jaxdyn, us", "Pinocchio, us", "compile time, s", "relative difference"]
        found.append(Table(f"random {shape}, {label}, {precision}, per evaluation", header, rows))
    return found


def _slope(records: list[dict]) -> str:
    if len(records) < 2:
        return "-"
    x, y = (np.log([r[key] for r in records]) for key in ("n", "seconds"))
    return f"{np.polyfit(x, y, 1)[0]:.2f}"


def _compile(records: list[dict]) -> list[Table]:
    found = []
    for (robot, precision), group in _groups(records, "robot", "precision").items():
        libraries = [key[0] for key in _columns(group)]
        header = ["one state, batch: s; equations", *libraries]
        rows = []
        for (label,), quantity in _groups(group, "label").items():
            of = {r["library"]: r for r in quantity}
            row = [label]
            for name in libraries:
                r = of.get(name)
                times = (
                    r
                    and f"{figures(r['compile_seconds'], 2)}, {figures(r['compile_seconds_batch'], 2)}; {r['equations']}"
                )
                row.append(times or "-")
            rows.append(row)
        found.append(Table(f"{robot}, {precision}, compilation", header, rows, _notes(group)))
    return found


def _memory(records: list[dict]) -> list[Table]:
    found = []
    for (robot, precision, batch), group in _groups(records, "robot", "precision", "batch").items():
        keys = ("bytes", "temporary_bytes", "peak_bytes")
        rows = [[r["label"], *("-" if r.get(k) is None else figures(r[k]) for k in keys)] for r in group]
        header = ["bytes per state", "arguments and results", "beyond them, says XLA", "measured growth, with results"]
        found.append(Table(f"{robot}, {precision}, {batch} states", header, rows))
    return found


def _distances(records: list[dict]) -> list[Table]:
    """Times per state, with the ratio of coal's time to ours."""
    found = []
    for (robot, precision), rows in _groups(records, "robot", "precision").items():
        coal = next(r["seconds"] for r in rows if r["library"] == "Pinocchio")
        lines = [
            [r["label"], micro(r["seconds"]), f"{coal / r['seconds']:.1f}", figures(r.get("compile_seconds"), 2)]
            for r in rows
        ]
        worst = next(r["error"] for r in rows if r["library"] == "jaxdyn")
        title = f"{robot}, {rows[0]['pairs']} pairs, {precision}; largest difference from coal {worst:.0e} m"
        found.append(Table(title, ["quantity", "us per state", "coal / this", "compilation [s]"], lines))
    return found


def _contacts(records: list[dict]) -> list[Table]:
    """Times per state, with the ratio of MuJoCo's time to ours."""
    found = []
    for (robot, precision), rows in _groups(records, "robot", "precision").items():
        theirs = {r["quantity"]: r["seconds"] for r in rows if r["library"] == "MuJoCo"}
        lines = []
        for r in rows:
            ratio = f"{theirs[r['quantity']] / r['seconds']:.2f}" if r["quantity"] in theirs else "-"
            lines.append([r["label"], micro(r["seconds"]), ratio, figures(r.get("compile_seconds"), 2)])
        worst = next(r["error"] for r in rows if r["library"] == "jaxdyn")
        title = f"{robot}, {precision}; largest relative difference of accelerations {worst:.0e}"
        found.append(Table(title, ["quantity", "us per state", "MuJoCo / this", "compilation [s]"], lines))
    return found


def _accuracy(records: list[dict]) -> list[Table]:
    found = []
    for (robot, count), group in _groups(records, "robot", "states").items():
        rows = [[r["label"], *(f"{r[k]:.1e}" for k in ("half", "most", "worst"))] for r in group]
        header = ["float32 against float64, relative", "half the states below", "99.9 % below", "worst"]
        found.append(Table(f"{robot}, {count} random states", header, rows))
    return found


def _identification(records: list[dict]) -> list[Table]:
    found = []
    for (robot, samples), group in _groups(records, "robot", "samples").items():
        loop = next((r["seconds"] for r in group if r["library"] == "Pinocchio"), None)
        rows = []
        for r in group:
            whole = figures(r["seconds"] * samples)
            peak = figures(r["peak_bytes"] / 2**20) if r.get("peak_bytes") else "-"
            times = "-" if loop is None else figures(loop / r["seconds"])
            timed = [micro(r["seconds"]), whole, times, micro(r["core_seconds"])]
            rows.append([f"{r['library']}, {r['variant']}", *timed, peak])
        first = group[0]
        header = [
            "",
            "us per sample",
            "s for all",
            "times the loop's speed",
            "us of a core",
            "peak of the process, MiB",
        ]
        notes = [
            f"{first['columns']} columns; {first['devices']} devices; the first run, which "
            f"compiles, took {figures(first['first'])} s; relative difference {first['error']:.0e}"
        ]
        found.append(Table(f"{robot}, {samples} samples, float64", header, rows, notes))
    return found
