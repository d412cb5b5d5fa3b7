"""What an identification leaves behind: table, report, terminal summary, and files that are whole or not there."""

import csv
import dataclasses
import datetime
import html.parser
import io
import math
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from helpers import random_chain
from jaxdyn import OutputError, load_model, save_urdf
from jaxdyn.identification import prior_parameters
from jaxdyn.identification._result import parameter_rows
from jaxdyn.io import load
from jaxdyn.io._files import check_output_folder, write_whole
from jaxdyn.report import (
    collect_provenance,
    parse_limit,
    print_summary,
    verdict,
    write_all,
    write_parameters,
    write_report,
)
from jaxdyn.report._files import results as output
from jaxdyn.report._files.parameters import COLUMNS
from jaxdyn.report._files.results import FILES
from jaxdyn.report._markup import rounded, with_deviation
from jaxdyn.report._pages.identification import report_html
from jaxdyn.report._pictures.over_time import envelope, torque_svg
from jaxdyn.report._quality import deviations_from, pooled
from jaxdyn.report._sections.overview import overview
from jaxdyn.report._sections.torques import pictures_section
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
    return Page(report_html(result, "A <robot>", datetime.datetime(2024, 5, 6, 7, 8)))


@pytest.fixture
def quick(monkeypatch):
    """A report that is drawn at once, for tests of what becomes of the file."""
    monkeypatch.setattr(
        "jaxdyn.report._pages.identification.report_html",
        lambda result, title, date, notes, *_: f"<h1>{title}</h1>{notes}",
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
        ("value", result.wls.values),
        ("standard_deviation", result.wls.standard_deviations),
        ("relative_sd_percent", result.wls.relative_standard_deviations),
        ("ols_value", result.ols.values),
        ("ols_sd", result.ols.standard_deviations),
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
    assert known["fc2"] == "yes" and float(full["fc2"]["standard_deviation"]) == result.wls.standard_deviations[k]
    assert full["fc2"]["belongs_to"] == "joint2" and full["m2"]["belongs_to"] == "link2"


def test_csv_is_read_by_numpy(result, tmp_path):
    write_parameters(result, tmp_path / "p.csv")
    table = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert table["value"][: result.base.size].tolist() == result.wls.values.tolist()
    assert np.isnan(table["standard_deviation"]).any()


def test_report_is_whole_and_needs_nothing_else(result, page):
    text = page.source
    n = result.chain.n
    # torques of both parts, positions, spectra, friction, singular values, two views of the bodies
    assert text.startswith("<!DOCTYPE html>") and page.tags.count("svg") == 2 * n + 3 * n + 1 + 2
    assert len(set(page.ids)) == len(page.ids)
    assert page.references and all(r.startswith("#") and r[1:] in page.ids for r in page.references)
    used = re.findall(r"url\(([^)]*)\)", text)
    assert used and all(u.startswith("#") and u[1:] in page.ids for u in used)
    assert "@import" not in text and not {"link", "img", "iframe", "object"} & set(page.tags)
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", text))
    assert addresses <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}  # names, not places


def test_report_says_what_there_is_to_say(result, page):
    text = " ".join("".join(page.text).split())
    unseen, fitted = pooled(result.validation), pooled(result.fitted)
    for words in (
        "A <robot>",
        "2024-05-06 07:08",
        "run <1> & more.csv",
        "the written model was then fitted to everything",
        f"{rounded(unseen.total_relative)} %",
        f"{rounded(fitted.total_relative)} %",
        *(rounded(x) for x in (*unseen.rms, *fitted.rms, *unseen.relative_moving, *fitted.relative)),
        *result.base.names,
        *result.base.unidentifiable,
        *result.base.dropped,
        *result.impossible,
        "No torque of this robot depends on these",
        "torque [N m]",
        "torque [N]",
        "time [s]",
    ):
        assert words in text, words


def test_report_names_impossible_links_and_notes(result, page):
    faulty = dataclasses.replace(result, impossible=("link 'arm': mass -1 kg is not positive",))
    text = overview(faulty, verdict(faulty))
    assert "link &#x27;arm&#x27;: mass -1 kg is not positive" in text and "allow_nonphysical=True" in text
    assert "allow_nonphysical" not in overview(result, verdict(result)) and "allow_nonphysical" not in page.source


def test_report_of_separate_validation_does_not_speak_of_a_refit(result):
    separate = dataclasses.replace(result, validation_refit=False)
    assert "fitted to everything" not in overview(separate, verdict(separate))


@pytest.mark.nightly
def test_report_stays_small(result):
    """7 joints, two runs, 2000 points: under 3 MB. So are many runs, of which not all are drawn."""
    rng = np.random.default_rng(0)
    evaluation = result.fitted[0]
    t = np.arange(2000) / 100
    noise = {name: rng.normal(size=(2000, 2)) for name in ("q", "qd", "qdd", "tau")}
    samples = dataclasses.replace(evaluation.samples, t=t, segments=((0, 2000),), **noise)
    run = dataclasses.replace(evaluation, samples=samples, prediction=noise["q"])
    seven = dataclasses.replace(result, fitted=(run,) * 4, validation=(run,) * 3)
    assert len(report_html(seven).encode()) < 3e6


def test_few_pictures_are_drawn_of_many_runs(result, monkeypatch):
    monkeypatch.setattr("jaxdyn.report._sections.torques.MOST_PICTURES", 4)
    page = Page(pictures_section(dataclasses.replace(result, fitted=result.fitted * 3)))
    assert page.tags.count("svg") == 4 and "".join(page.text).count("Not drawn") == 2


def test_envelope_keeps_peaks_and_ends():
    rng = np.random.default_rng(1)
    t = np.arange(10_000) / 1000
    y = rng.normal(size=10_000)
    y[[1234, 8765]] = 50, -60
    short_t, short_y = envelope(t, y, 400)
    assert len(short_t) <= 402 and np.all(np.diff(short_t) > 0)
    assert {short_t[0], short_t[-1]} == {t[0], t[-1]}
    assert short_y.max() == 50 and short_y.min() == -60 and short_t[short_y.argmax()] == t[1234]
    assert set(zip(short_t, short_y, strict=True)) <= set(zip(t, y, strict=True))
    assert envelope(t[:100], y[:100], 400)[0] is not None and len(envelope(t[:100], y[:100], 400)[0]) == 100


def test_gaps_part_the_curves(result):
    evaluation = result.fitted[0]
    count = len(evaluation.samples.t)
    halves = ((0, count // 2), (count // 2, count))
    parted = dataclasses.replace(evaluation, samples=dataclasses.replace(evaluation.samples, segments=halves))
    for name in ("measured", "predicted", "residual"):
        strokes = [torque_svg(e, 0, "N m").count(f"stroke: var(--{name})") for e in (evaluation, parted)]
        assert strokes == [2, 3]  # one more curve; one is the legend's
    assert "fill: var(--gap)" in torque_svg(parted, 0, "N m") and "--gap" not in torque_svg(evaluation, 0, "N m")


def test_pictures_leave_matplotlib_as_it_is(result):
    import matplotlib

    before = dict(matplotlib.rcParams)
    first, again = (torque_svg(result.fitted[0], 0, "N m", key="a") for _ in range(2))
    assert first == again
    assert dict(matplotlib.rcParams) == before
    assert "#0" not in re.sub(r"url\(#\w+\)|href=\"#\w+\"", "", first)  # every colour is the page's


def test_values_are_shown_to_the_digits_they_have():
    assert with_deviation(1.23456, 0.0067) == ("1.2346", "0.0067")
    assert with_deviation(1234.56, 210.0) == ("1.23e+03", "2.1e+02")
    assert with_deviation(0.5, 0.0) == ("0.5", "0")
    assert with_deviation(0.04, 5.1) == ("0.0", "5.1")
    assert [rounded(x) for x in (math.nan, 0.0, 1.0, 16.26, 250.4, 14495.6, 1e-5)] == [
        "\N{EN DASH}",
        "0",
        "1.00",
        "16.3",
        "250",
        "14496",
        "1.00e-05",
    ]


def printed(result, paths=None, truth=None):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_summary(result, paths, truth, console)
    return console.file.getvalue()


def test_summary_fits_on_a_screen(result, truth, tmp_path):
    text = printed(result, {name: tmp_path / name for name in FILES}, truth)
    assert len(text.splitlines()) + 5 <= 40  # seven joints have five lines more
    for words in ("joint1", "joint2", " N m", f"{result.base.size} base parameters", *FILES, "Best", "Worst"):
        assert words in text
    off = np.abs(deviations_from(result, truth))
    assert f"{int((off <= 2).sum())} of {result.base.size} base parameters within 2" in text
    assert off.max() < 8
    assert "identified.urdf and identified.xml could not be written" in printed(
        result, {"report.html": tmp_path / "report.html"}
    )


def test_all_files_are_written_and_the_model_comes_back(result, tmp_path, quick):
    paths = write_all(result, tmp_path / "new" / "out")
    assert tuple(paths) == FILES
    assert sorted(os.listdir(tmp_path / "new" / "out")) == sorted(FILES)
    again = load(paths["identified.urdf"], tip=result.chain.topology.tip_name, allow_nonphysical=True)
    np.testing.assert_allclose(again.inertia, result.chain.inertia, rtol=1e-9, atol=1e-9)
    assert write_all(result, tmp_path / "new" / "out") == paths  # once more, over them


def test_how_the_model_was_loaded_reaches_the_source(result, tmp_path, monkeypatch, quick):
    given = {}
    monkeypatch.setattr(output, "update_urdf", lambda source, chain, path, **options: given.update(options))
    loaded = {"lock": {"finger": 0.0}, "tip": "hand", "floating_base": "root", "ignore_mimic": True}
    write_all(result, tmp_path / "out", source_urdf="robot.urdf", load_options=loaded)
    assert {key: given[key] for key in loaded} == loaded


def test_limits_and_provenance_reach_the_report(result, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(
        "jaxdyn.report._pages.identification.report_html",
        lambda *arguments: given.setdefault("all", arguments) and "page",
    )
    limits, known = [parse_limit("rms=0.3")], collect_provenance()
    write_all(result, tmp_path, limits=limits, provenance=known)
    assert given["all"][0] is result and given["all"][-2] == limits and given["all"][-1] is known


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
    assert tuple(paths) == ("parameters.csv", "model.eqx", "report.html")
    left = ["identified.urdf.old", "identified.xml.old", "model.eqx", "parameters.csv", "report.html"]
    assert sorted(os.listdir(out)) == left
    assert (out / "identified.urdf.old").read_text("utf-8") == earlier
    report = paths["report.html"].read_text("utf-8")
    assert report.count("was not written") == 2 and report.count("helical") >= 2 and ".draft" not in report
    np.testing.assert_array_equal(load_model(paths["model.eqx"]).screw, helical.chain.screw)


def check_folder(folder):
    check_output_folder(folder, FILES)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), OutputError("no")])
@pytest.mark.parametrize("writer", ["write_parameters", "save_urdf", "save_model", "write_report"])
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


@pytest.mark.parametrize("at", (1, 2, 5, 9, 10))
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
            with pytest.raises(OutputError, match=r"file.*is a file; give another folder"):
                check(folder)
    (tmp_path / "full" / "report.html").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"report\.html: is a folder"):
        check_folder(tmp_path / "full")
    check_folder(tmp_path / "not" / "yet")
    assert sorted(os.listdir(tmp_path)) == ["file", "full"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match=r"no permission to write in .*give another folder"):
        check_folder(tmp_path / "not" / "yet")


def test_single_files_that_cannot_be_written_say_so(result, tmp_path, quick):
    for write in (write_parameters, write_report):
        with pytest.raises(OutputError, match=r"missing.*cannot be written"):
            write(result, tmp_path / "missing" / "x")


def test_rows_of_the_base_have_the_unit_of_their_lead(result):
    base, full = parameter_rows(result)
    units = {row.name: row.unit for row in full}
    assert all(row.unit == units[result.names[lead]] for row, lead in zip(base, result.base.kept, strict=True))
