"""Output of an identification: table, report, terminal summary, and files written completely or not at all."""

import base64
import csv
import dataclasses
import datetime
import html.parser
import io
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from helpers import random_chain
from jaxdyn import OutputError, load_model, save_urdf
from jaxdyn.identification import Coulomb, FrictionModel, fit_quality, load_torque_model
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.diagnostics import Finding
from jaxdyn.identification.friction_fit import FrictionFit
from jaxdyn.identification.least_squares import SplitHalf
from jaxdyn.identification.result import parameter_rows
from jaxdyn.identification.selection import TermChoice, Trial
from jaxdyn.identification.validation import Resimulation
from jaxdyn.io import load
from jaxdyn.io.files import check_output_folder, write_whole
from jaxdyn.report import (
    collect_provenance,
    parse_limit,
    print_summary,
    results as output,
    sections,
    verdict,
    write_all,
    write_errors,
    write_parameters,
    write_report,
)
from jaxdyn.report.files import COLUMNS, FilePrediction, predictions_of
from jaxdyn.report.markup import notes_section, rounded, with_deviation
from jaxdyn.report.page import report_html
from jaxdyn.report.pictures import packed, thinned, time_view
from jaxdyn.report.quality import deviations_from, pooled, pooled_raw
from jaxdyn.report.results import FILES
from jaxdyn.report.sections import first_screen, torques_section
from report_example import small_example

VOID = {"meta", "br", "input", "link", "img", "hr"}


@pytest.fixture(scope="module")
def truth():
    return small_example()[0]


@pytest.fixture(scope="module")
def result():
    """A revolute and a prismatic joint, with a held-out part."""
    return small_example()[1]


@pytest.fixture(scope="module")
def page(result):
    """The report, read: drawing it takes a second."""
    return Page(report_html(result, verdict(result), "A <robot>", datetime.datetime(2024, 5, 6, 7, 8)))


@pytest.fixture
def quick(monkeypatch):
    """A report that is drawn at once, for tests of what becomes of the file."""
    monkeypatch.setattr(
        "jaxdyn.report.page.report_html",
        lambda result, judged, title, date, notes, *_: f"<h1>{title}</h1>{notes}",
    )


def cells(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Page(html.parser.HTMLParser):
    """Checks that tags nest, and collects ids, references and text."""

    def __init__(self, text):
        super().__init__()
        self.source = text
        self.open, self.ids, self.references, self.text, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._attributes(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self._attributes(attrs)

    def _attributes(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                self.references.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def test_csv_holds_the_numbers_exactly(result, tmp_path):
    write_parameters(result, tmp_path / "p.csv")
    rows = cells(tmp_path / "p.csv")
    assert tuple(rows[0]) == COLUMNS
    base = [row for row in rows if row["kind"] == "base"]
    full = rows[len(base) :]
    assert tuple(row["name"] for row in base) == result.base.names
    assert tuple(row["name"] for row in full) == result.names
    for column, values in (
        ("value", result.estimate.values),
        ("standard_deviation", result.estimate.standard_deviations),
        ("relative_sd_percent", result.estimate.relative_standard_deviations),
        ("lower", result.estimate.confidence_intervals()[:, 0]),
        ("upper", result.estimate.confidence_intervals()[:, 1]),
    ):
        assert [float(row[column]) for row in base] == values.tolist()
    prior = prior_parameters(result.prior, result.columns)
    assert [float(row["value"]) for row in full] == result.parameters.tolist()
    assert [float(row["model_value"]) for row in full] == result.parameters.tolist()
    assert [float(row["model_value"]) for row in base] == (result.base.matrix @ result.parameters).tolist()
    assert [float(row["prior"]) for row in full] == prior.tolist()
    assert [float(row["prior"]) for row in base] == (result.base.matrix @ prior).tolist()
    units = {row["name"]: row["unit"] for row in full}
    assert units["fv1"] == "N m s/rad" and units["fv2"] == "N s/m" and units["m2"] == "kg"


def test_nonlinear_parameters_of_friction_are_rows_with_positive_intervals(result, tmp_path):
    n, friction = result.chain.n, FrictionModel((Coulomb(0.02),)).for_joints(2)
    columns = dataclasses.replace(result.columns, friction=friction)
    deviations = np.array([[0.9], [800.0]])  # of the logarithm; the second says nothing, and its upper end overflows
    fit = FrictionFit(
        *(result.chain, columns, result.base, result.parameters, result.covariance, np.ones(n)),
        *(np.full((n, 1), 0.02), deviations, 0.0, 1),
    )
    found = dataclasses.replace(result, friction=fit)
    row, vague = parameter_rows(found)[2]
    assert row.identifiable == "yes" and (vague.identifiable, vague.lower, vague.upper) == ("no", 0.0, np.inf)
    undetermined = dataclasses.replace(fit, nonlinear_deviations=np.array([[0.9], [np.inf]]))
    assert parameter_rows(dataclasses.replace(result, friction=undetermined))[2] == [row]
    assert (row.kind, row.name, row.belongs_to) == ("friction", "width(fc) of joint 1", result.chain.joint_names[0])
    assert row.value == 0.02 and row.standard_deviation == pytest.approx(0.018) and row.prior is None
    factor = np.exp(0.9 * result.estimate.interval_factor())
    np.testing.assert_allclose([row.lower, row.upper], [0.02 / factor, 0.02 * factor])
    write_parameters(found, tmp_path / "p.csv")
    last = cells(tmp_path / "p.csv")[-2]
    assert last["kind"] == "friction" and float(last["lower"]) == row.lower and last["prior"] == ""
    pytest.importorskip("pandas")
    assert found.to_pandas().loc[row.name, "upper"] == row.upper


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_parts_that_printing_unfolds_are_folded_again():
    script = (Path(sections.__file__).parent / "page.js").read_text()
    script = script[script.index("const folded") : script.index("\n", script.index("afterprint"))]
    program = f"""
        const parts = [false, true, false].map(open => ({{open}})), on = {{}};
        const addEventListener = (name, f) => {{ on[name] = f; }};
        const document = {{querySelectorAll: () => parts.filter(part => !part.open)}};
        {script}
        on.beforeprint(); on.beforeprint(); const printed = parts.map(part => part.open);
        on.afterprint(); console.log(JSON.stringify([printed, parts.map(part => part.open)]));"""
    said = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(said) == [[True] * 3, [False, True, False]]


def test_full_parameters_say_whether_they_are_identifiable(result, tmp_path):
    write_parameters(result, tmp_path / "p.csv")
    full = {row["name"]: row for row in cells(tmp_path / "p.csv") if row["kind"] == "full"}
    known = {name: row["identifiable"] for name, row in full.items()}
    assert {name for name in known if known[name] == "no"} == set(result.base.unidentifiable) != set()
    in_sums = {name for name in known if known[name] == "only in sums"}
    assert set(result.base.dropped) < in_sums  # and the leads of their sums
    for name, row in full.items():
        assert (row["standard_deviation"] != "") == (known[name] == "yes")
    k = result.base.names.index("fc2")
    assert (
        known["fc2"] == "yes" and float(full["fc2"]["standard_deviation"]) == result.consistent.standard_deviations[k]
    )
    assert full["fc2"]["belongs_to"] == "joint2" and full["m2"]["belongs_to"] == "link2"


def test_csv_is_read_by_numpy(result, tmp_path):
    write_parameters(result, tmp_path / "p.csv")
    table = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert table["value"][: result.base.size].tolist() == result.estimate.values.tolist()
    assert np.isnan(table["standard_deviation"]).any()


def data_of(text):
    """Data behind the plots of a page."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return [json.loads(data) for data in found]


def values_of(column):
    low, high, text = column
    steps = np.frombuffer(base64.b64decode(text), "<u2")
    return np.where(steps == 65535, np.nan, low + (high - low) * steps / 65534)


def test_report_is_whole_and_needs_nothing_else(result, page):
    text, n = page.source, result.chain.n
    plots = data_of(text)
    assert text.startswith("<!DOCTYPE html>") and page.tags.count("figure") == len(plots)
    # torques of both parts, friction, and positions of the held-out part, which are folded
    assert [len(data["views"]) for data in plots] == [2 * n, n, n]
    assert re.findall(r'<h2 id="(\w+)"', text) == [
        "problems",
        "torques",
        "errors",
        "friction",
        "parameters",
        "notes",
        "provenance",
        "details",
    ]
    assert len(set(page.ids)) == len(page.ids)
    assert page.references and all(r.startswith("#") and r[1:] in page.ids for r in page.references)
    assert "url(" not in text.replace("url(#${", "") and "@import" not in text
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not re.findall(r"https?://|fetch\(|XMLHttpRequest|import\(", text)


def test_plots_hold_the_curves(result, page):
    torques = data_of(page.source)[0]
    assert torques["choices"] == [
        ["run", [f"{e.title[0].upper()}{e.title[1:]}" for e in (*result.validation, *result.fitted)]],
        ["joint", list(result.chain.joint_names)],
    ]
    e = result.fitted[0]
    for j in range(2):
        view = torques["views"][2 + j]
        columns = [values_of(column) for column in view["columns"]]
        upper, lower = (panel["curves"] for panel in view["panels"])
        for curve, y in zip((*upper, *lower), (e.samples.tau, e.prediction, e.samples.tau - e.prediction), strict=True):
            drawn = columns[curve["y"][0]] - (columns[curve["y"][1]] if len(curve["y"]) > 1 else 0)
            near = [np.argmin(np.abs(e.samples.t - t)) for t in columns[curve["x"]]]
            np.testing.assert_allclose(drawn, y[near, j], atol=4e-5 * np.ptp(e.samples.tau[:, j]))
        assert [panel["label"] for panel in view["panels"]] == [
            f"{k} [{('N m', 'N')[j]}]" for k in ("torque", "residual")
        ]


def test_report_says_what_there_is_to_say(result, page):
    text = " ".join("".join(page.text).split())
    unseen, fitted = pooled(result.validation), pooled(result.fitted)
    held, known = pooled_raw(result.validation), pooled_raw(result.fitted)
    assert np.all(held.rms >= unseen.rms) and held.samples == unseen.samples
    for words in (
        "A <robot>",
        "2024-05-06 07:08",
        "run <1> & more.csv",
        "the written model fits all data",
        f"{rounded(unseen.total_relative)} %",
        *(
            rounded(x)
            for fit in (unseen, fitted, held, known)
            for x in (*fit.rms, *fit.relative_moving, fit.total_relative)
        ),
        *result.base.names,
        *result.inconsistent_links,
        "viscous, Coulomb, constant friction at every joint",
        "Given model, on held-out motion",
        "all moving links",
    ):
        assert words in text, words
    for names, word in ((result.base.unidentifiable, "no"), (result.base.dropped, "only in sums")):
        assert all(f"{name}: identifiable {word};" in page.source for name in names)


def test_report_names_impossible_links_and_notes(result, page):
    faulty = dataclasses.replace(result, inconsistent_links=("link 'arm': mass -1 kg is not positive",))
    text = first_screen(faulty, verdict(faulty))
    assert "link &#x27;arm&#x27;: mass -1 kg is not positive" in text and "allow_nonphysical=True" in text
    assert "allow_nonphysical" not in page.source


def test_report_of_separate_validation_does_not_speak_of_a_refit(result):
    separate = dataclasses.replace(result, held_out_model=None)
    assert "fits all data" in report_html(result, verdict(result))
    assert "fits all data" not in report_html(separate, verdict(separate))


def test_report_stays_small(result):
    """Seven joints and eight long runs: at most 1.5 MB with everything else a page has."""
    rng = np.random.default_rng(0)
    t = np.arange(6000) / 100
    y = rng.normal(size=(6000, 7))
    samples = dataclasses.replace(
        result.fitted[0].samples, t=t, q=y, qd=y, qdd=y, tau=y, segments=((0, 2500), (2500, 6000))
    )
    fit = fit_quality(y, y + 1, y)
    run = dataclasses.replace(result.fitted[0], samples=samples, prediction=y + 1, fit=fit, unconstrained=fit)
    many = dataclasses.replace(result, chain=random_chain(7), fitted=(run,), validation=(run,) * 7)
    moved = Resimulation(((0, 6000),), y, np.ones(7), np.ones((9, 7)), np.ones(7), 0.5)
    simulated = dataclasses.replace(verdict(result), given=None, simulated=[(run, moved)] * 7)
    size = len(torques_section(many).encode()) + len(positions(many, simulated).encode())
    assert 0.5e6 < size < 1.2e6


def positions(result, judged):
    """The part of the page on positions."""
    return sections._positions(result, judged)


def test_thinning_keeps_peaks_and_ends():
    rng = np.random.default_rng(1)
    y, z = rng.normal(size=(2, 10_000))
    y[[1234, 8765]], z[4321] = (50, -60), 70
    index = thinned([y, z], ((0, 6000), (6000, 10_000)), 800)
    assert len(index) <= 810 and list(index).count(-1) == 1
    first, last = np.split(index, [list(index).index(-1)])
    assert np.all(np.diff(first) > 0) and np.all(np.diff(last[1:]) > 0)
    assert {0, 5999} <= set(first) and {6000, 9999} <= set(last) and {1234, 8765, 4321} <= set(index)
    np.testing.assert_array_equal(thinned([y[:100]], ((0, 100),), 400), np.arange(100))
    z[40:60] = np.nan
    parted = thinned([y[:100], z[:100]], ((0, 100),), 400)
    assert list(parted) == [*range(40), -1, *range(60, 100)]
    assert len(thinned([np.full(5, np.nan)], ((0, 5),), 10)) == 0


def test_gaps_part_the_curves(result):
    s = result.fitted[0].samples
    half = len(s.t) // 2
    given = (
        {"predicted": result.fitted[0].prediction[:, 0]},
        ((0, half), (half, len(s))),
        ("torque", "residual", "N m"),
    )
    view = time_view(s.t, s.tau[:, 0], *given)
    assert view.gaps == [(s.t[half - 1], s.t[half])]
    (at,) = np.flatnonzero(np.isnan(view.panels[0].curves[0].y))
    assert view.x[at - 1] == view.x[at] == s.t[half - 1] and view.x[at + 1] == s.t[half]


def test_numbers_come_back_from_text():
    rng = np.random.default_rng(2)
    y = 1e3 * rng.normal(size=500)
    y[77] = np.nan
    np.testing.assert_allclose(values_of(packed(y)), y, atol=np.ptp(y[~np.isnan(y)]) / 65534)
    assert np.isnan(values_of(packed(np.full(3, np.nan)))).all()
    np.testing.assert_array_equal(values_of(packed(np.full(3, 0.1))), 0.1)


def test_errors_by_run_in_a_file_and_on_the_page(result, page, tmp_path):
    write_errors(result, tmp_path / "e.csv")
    rows = cells(tmp_path / "e.csv")
    runs = (*result.validation, *result.fitted)
    assert [(r["run"], r["joint"]) for r in rows] == [(e.title, j) for e in runs for j in result.chain.joint_names]
    for column, values in (("rms", "rms"), ("rre_percent", "relative"), ("rre_moving_percent", "relative_moving")):
        assert [float(r[column]) for r in rows] == [x for e in runs for x in getattr(e.fit, values)]
        assert [float(r[f"raw_{column}"]) for r in rows] == [x for e in runs for x in getattr(e.raw, values)]
    size = [np.sqrt((e.samples.tau[:, j] ** 2).mean()) for e in runs for j in range(2)]
    np.testing.assert_allclose([float(r["torque_rms"]) for r in rows], size, rtol=1e-12)
    assert [(r["fitted"], r["unit"]) for r in rows] == [("no", "N m"), ("no", "N"), ("yes", "N m"), ("yes", "N")]
    for k, e in enumerate(runs):
        for j in range(2):
            link = f'href="#torques" data-run="{k}" data-joint="{j}">{rounded(e.fit.relative_moving[j])}'
            assert link in page.source


def test_what_may_be_wrong_stands_in_the_summary(result):
    finding = Finding("sign", ("joint1",), "the sign of <joint1> is wrong")
    assert "No fault was found" in first_screen(result, verdict(result))
    text = first_screen(result, verdict(result, findings=[finding]))
    assert "The sign of &lt;joint1&gt; is wrong" in text and "No fault" not in text


def test_values_are_shown_to_the_digits_they_have():
    assert with_deviation(1.23456, 0.0067) == ("1.2346", "0.0067")
    assert with_deviation(1234.56, 210.0) == ("1.23e+03", "2.1e+02")
    assert with_deviation(0.5, 0.0) == ("0.5", "0")
    assert with_deviation(0.04, 5.1) == with_deviation(-0.04, 5.1) == ("0.0", "5.1")
    assert [rounded(x) for x in (math.nan, 0.0, 1.0, 16.26, 250.4, 14495.6, 1e-5)] == [
        "\N{EN DASH}",
        "0",
        "1.00",
        "16.3",
        "250",
        "14496",
        "1.00e-05",
    ]


def printed(result, paths=None, truth=None, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_summary(result, paths, truth, console)
    return console.file.getvalue()


@pytest.mark.ci
def test_drift_between_runs_is_named(result):
    b = result.base.size
    apart = np.zeros(b)
    worn = [k for k, name in enumerate(result.base.names) if name.startswith(("fv", "fc"))][:3]
    apart[worn] = (5.0, -4.0, 3.0)
    two = dataclasses.replace(result, fitted=result.fitted * 2, split_half=SplitHalf(result.base.names, apart))
    (check,) = (check for check in verdict(two).checks if check.text.startswith("Drift between the fitted runs"))
    assert check.level == "fair" and "temperature, or wear" in check.text and result.base.names[worn[0]] in check.text
    alike = dataclasses.replace(two, split_half=SplitHalf(result.base.names, np.zeros(b)))
    assert not [check for check in verdict(alike).checks if check.text.startswith("Drift")]


def test_notes_are_folded():
    few, many = (notes_section([f"note {k}" for k in range(count)]) for count in (6, 7))
    assert "details" not in few and "<summary>3 more</summary>" in many and many.count("<li>") == 7
    assert notes_section([]).count("None.") == 1


@pytest.mark.ci
def test_files_that_predict_worse_are_reasons(result):
    fit = result.validation[0].fit
    whole, worse = FilePrediction("model.eqx", fit, ""), dataclasses.replace(fit, total_relative=2 * fit.total_relative)
    assert verdict(result, files=[whole]).uses == verdict(result).uses
    urdf = verdict(result, files=[whole, FilePrediction("identified.urdf", worse, "it has no place for memory")])
    assert urdf.uses == verdict(result).uses
    (check,) = (check for check in urdf.checks if "identified.urdf" in check.text)
    assert check.level == "fair" and "Use model.eqx" in check.text and "it has no place for memory" in check.text
    broken = verdict(result, files=[FilePrediction("model.eqx", worse, "its numbers are rounded")])
    assert broken.level == "poor" and all("model.eqx, differs from the fitted one" in use.text for use in broken.uses)


def test_summary_has_twenty_lines_for_seven_joints(result, truth, tmp_path):
    paths = {name: tmp_path / name for name in FILES}
    text = printed(result, paths, truth)
    assert len(text.splitlines()) <= 20 + result.chain.n - 7
    joints = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("joint")}
    given = verdict(result).given.given
    for j, name in enumerate(
        result.rows
    ):  # like with like: both relative to the filtered torque, while the joint moves
        assert joints[name] == [rounded(fit.relative_moving[j]) for fit in (pooled(result.validation), given)]
    assert all(words in text for words in ("held out", "given model", *FILES)) and "condition number" not in text
    off = np.abs(deviations_from(result, truth))
    assert f"{int((off <= 2).sum())} of {result.base.size} base parameters within 2" in text
    assert off.max() < 8
    assert "identified.urdf and identified.xml could not be written" in printed(
        result, {name: tmp_path / name for name in ("model.eqx", "report.html")}
    )


def test_warnings_that_do_not_fit_are_shortened_and_counted(result):
    findings = [Finding("sign", (), f"fault {k}: " + "word " * 40) for k in range(30)]
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_summary(result, console=console, findings=findings)
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 20 and all(len(line) <= 80 for line in lines)
    shown = [line for line in lines if line.startswith("fault")]
    assert all(line.endswith(" ...") for line in shown) and len(shown) >= 5
    (more,) = [line for line in lines if line.startswith("... and")]
    warnings = 30 + sum(use.level != "good" for use in verdict(result, findings=findings).uses)
    assert int(more.split()[2]) == warnings - sum(line.endswith(" ...") for line in lines)


def test_terminal_states_the_terms(result):
    n = result.chain.n
    before, errors = np.ones(n), np.where(np.arange(n) == 1, 0.9, 1.004)
    trial = Trial(2, "spring", "spring", 10.0, 3.0, True)
    choice = TermChoice((), (2,), np.zeros(n), None, before, errors, before, (trial,))
    text = " ".join(printed(dataclasses.replace(result, choice=choice)).split())
    assert f"Terms: {choice.sentence}" in text
    text = printed(dataclasses.replace(result, choice=dataclasses.replace(choice, trials=())))
    assert "nothing beyond the plain model was adopted" in text


def test_all_files_are_written_and_the_model_comes_back(result, tmp_path, quick):
    paths = write_all(result, tmp_path / "new" / "out", settings="holdout = 0.3\n")
    assert tuple(paths) == FILES
    assert sorted(os.listdir(tmp_path / "new" / "out")) == sorted(FILES)
    again = load(paths["identified.urdf"], tip=result.chain.topology.tip_name, allow_nonphysical=True)
    np.testing.assert_allclose(again.inertia, result.chain.inertia, rtol=1e-9, atol=1e-9)
    assert write_all(result, tmp_path / "new" / "out", settings="holdout = 0.3\n") == paths  # once more, over them


def test_a_table_wider_than_the_terminal_is_not_cut(result):
    wide, narrow = (printed(result, width=width) for width in (300, 30))
    rows = lambda text: [line.rstrip() for line in text.splitlines() if line.startswith(("error", "joint", "all "))]
    assert rows(narrow) == rows(wide) and len(rows(wide)) == result.chain.n + 2 and "…" not in narrow


def test_times_since_1970_are_counted_from_the_first_sample():
    t = 1_764_280_000.156 + np.arange(100) / 100
    views = [
        time_view(x, np.sin(t), {"predicted": np.cos(t)}, ((0, 100),), ("torque", "error", "N m"))
        for x in (t, t - t[0])
    ]
    assert [view.x_label for view in views] == ["time since the first sample [s]", "time [s]"]
    np.testing.assert_allclose(views[0].x, views[1].x, atol=1e-6)


def test_a_file_without_its_reader_is_no_failure(result, tmp_path, monkeypatch):
    write_all(result, tmp_path)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    files = predictions_of(result, tmp_path, {"tip": result.chain.topology.tip_name})
    assert [file.fit is None for file in files] == [False, False, True]
    assert files[2].why == "not read back, because the optional package mujoco is not installed"
    for name in ("identified.urdf", "identified.xml"):  # damaged: named without the folder, which may be a draft's
        (tmp_path / name).write_text("<robot")
        (broken,) = (file for file in predictions_of(result, tmp_path, {}) if file.name == name)
        assert broken.fit is None and name in broken.why and str(tmp_path) not in broken.why


def test_how_the_model_was_loaded_reaches_the_source(result, tmp_path, monkeypatch, quick):
    given = {}
    monkeypatch.setattr(output, "update_urdf", lambda source, chain, path, **options: given.update(options))
    loaded = {"lock": {"finger": 0.0}, "tip": "hand", "floating_base": "root", "ignore_mimic": True}
    write_all(result, tmp_path / "out", source_urdf="robot.urdf", load_options=loaded)
    assert {key: given[key] for key in loaded} == loaded


def test_limits_and_provenance_reach_the_report(result, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(
        "jaxdyn.report.page.report_html",
        lambda *arguments: given.setdefault("all", arguments) and "page",
    )
    limits, known = [parse_limit("rms=0.3")], collect_provenance()
    written = write_all(result, tmp_path, limits=limits, provenance=known)
    assert given["all"][0] is result
    assert given["all"][1] is written.judged and [check.level for check in written.judged.limits] == ["good"]
    # the model that is read again predicts what the report shows
    again = load_torque_model(written["model.eqx"])
    for run in result.fitted:
        np.testing.assert_allclose(run.prediction, run.predicted_by(again), rtol=1e-12, atol=1e-12)
    # the terminal says what the report says
    headline, written.judged = written.judged.headline, dataclasses.replace(written.judged, headline="A verdict.")
    assert "A verdict." in printed(result, written) and headline not in printed(result, written)
    assert given["all"][5] is known
    assert [file.name for file in written.judged.files] == ["model.eqx", "identified.urdf", "identified.xml"]


def test_the_source_is_updated(result, tmp_path, quick):
    source = tmp_path / "robot_one.urdf"
    save_urdf(result.prior, source)
    source.write_text(source.read_text("utf-8").replace("<link", "<!-- mine --><link", 1), "utf-8")
    tip = result.chain.topology.tip_name
    read = dataclasses.replace(load(source, tip=tip), inertia=result.chain.inertia)
    updated = dataclasses.replace(result, chain=read)
    paths = write_all(updated, tmp_path / "out", source_urdf=source, load_options={"tip": tip})
    assert "<!-- mine -->" in paths["identified.urdf"].read_text("utf-8")
    assert "<h1>Identification of robot_one</h1>" in paths["report.html"].read_text("utf-8")
    in_place = tmp_path / "out" / "identified.urdf"  # the former result as the next run's source
    assert write_all(updated, tmp_path / "out", source_urdf=in_place, load_options={"tip": tip}) == paths


def test_a_model_that_no_urdf_holds_does_not_lose_the_rest(result, tmp_path, quick):
    out = tmp_path / "out"
    write_all(result, out)
    earlier = (out / "identified.urdf").read_text("utf-8")
    helical = dataclasses.replace(result, chain=random_chain(2, joints="helical"))
    paths = write_all(helical, out)
    assert tuple(paths) == ("parameters.csv", "errors.csv", "model.eqx", "report.html")
    left = ["errors.csv", "identified.urdf.old", "identified.xml.old", "model.eqx", "parameters.csv", "report.html"]
    assert sorted(os.listdir(out)) == left
    assert (out / "identified.urdf.old").read_text("utf-8") == earlier
    report = paths["report.html"].read_text("utf-8")
    assert report.count("was not written") == 2 and report.count("helical") >= 2 and ".draft" not in report
    np.testing.assert_array_equal(load_model(paths["model.eqx"]).screw, helical.chain.screw)


def check_folder(folder):
    check_output_folder(folder, FILES)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), OutputError("no")])
@pytest.mark.parametrize("writer", ["write_parameters", "save_urdf", "save_torque_model", "write_report"])
def test_nothing_is_left_behind_by_a_failure(result, tmp_path, monkeypatch, writer, fault, quick):
    real = getattr(output, writer)

    def fail(*given, **named):
        real(*given, **named)
        raise fault

    monkeypatch.setattr(output, writer, fail)
    expected = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else OutputError
    with pytest.raises(expected, match="No space left" if isinstance(fault, OSError) else None):
        write_all(result, tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(expected):
        write_all(result, tmp_path)
    assert os.listdir(tmp_path) == ["report.html"] and (tmp_path / "report.html").read_text() == "mine"


@pytest.mark.parametrize("at", (1, 2, 5, 9, 12))
def test_files_moved_in_place_are_put_back_when_a_later_one_cannot_be(result, tmp_path, monkeypatch, at, quick):
    for name in FILES:
        (tmp_path / name).write_text(f"old {name}")
    real, count = os.replace, 0

    def fail(source, place):
        nonlocal count
        if ".results." in f"{source}{place}" and not f"{source}".endswith("part"):
            count += 1
            if count == at:
                raise OSError(5, "Input/output error")
        real(source, place)

    monkeypatch.setattr(output.os, "replace", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        write_all(result, tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)
    assert all((tmp_path / name).read_text() == f"old {name}" for name in FILES)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(result, tmp_path, quick):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    of = lambda pid, node: [f".results.{node}-{pid}.x1_part", f".report.html.{node}-{pid}.part"]
    here = platform.node()
    kept = [*of(os.getppid(), here), *of(dead.pid, "elsewhere"), ".report.html.part", "mine.part"]
    for name in (*of(dead.pid, here), *of(dead.pid, "elsewhere.long-ago"), *kept):
        (tmp_path / name).write_text("half")
        if "long-ago" in name:
            os.utime(tmp_path / name, (0, 0))
    write_all(result, tmp_path)
    write_whole(tmp_path / "report.html", "whole")
    assert set(os.listdir(tmp_path)) == {*kept, *(name for name in FILES if (tmp_path / name).exists())}


def test_folders_that_cannot_be_written_are_refused_before_the_work(result, tmp_path, monkeypatch, quick):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        for check in (check_folder, lambda folder: write_all(result, folder)):
            with pytest.raises(OutputError, match=r"file.*is a file; specify another folder"):
                check(folder)
    (tmp_path / "full" / "report.html").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"report\.html is a folder"):
        check_folder(tmp_path / "full")
    check_folder(tmp_path / "not" / "yet")
    assert sorted(os.listdir(tmp_path)) == ["file", "full"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match=r"no permission to write in .*specify another folder"):
        check_folder(tmp_path / "not" / "yet")


def test_single_files_that_cannot_be_written_say_so(result, tmp_path, quick):
    for write in (write_parameters, write_errors, write_report):
        with pytest.raises(OutputError, match=r"missing.*cannot be written"):
            write(result, tmp_path / "missing" / "x")


def test_rows_of_the_base_have_the_unit_of_their_lead(result):
    base, full, _ = parameter_rows(result)
    units = {row.name: row.unit for row in full}
    assert all(row.unit == units[result.names[lead]] for row, lead in zip(base, result.base.kept, strict=True))
