"""The examples of documents run: the README's, the tutorial's, and the notebook."""

import pathlib
import re
import textwrap

import nbclient
import nbformat
import numpy
import pyarrow
import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]


def example(text, begin):
    """Returns the indented code that begins with this line, with later blocks of the same page."""
    blocks = re.findall(r"(?:^(?: {4}.*|)\n)+", text, re.MULTILINE)
    code = [textwrap.dedent(block) for block in blocks if block.strip()]
    first = next(n for n, block in enumerate(code) if block.strip().startswith(begin))
    return [block for block in code[first:] if not re.match(r"\s*(\$|flashsift |python3 )", block)]


@pytest.mark.parametrize(
    ("page", "blocks", "files"),
    [
        ("README.md", 1, ["hits.pdf", "hits.svg"]),
        ("docs/tutorial-researchers.md", 7, ["hits.svg", "misses.pdf", "misses.svg", "curve.svg"]),
    ],
)
def test_the_examples_run(page, blocks, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "testdata").symlink_to(REPOSITORY / "testdata")
    write_objects(tmp_path / "cdn.oracleGeneral.zst")
    text = (REPOSITORY / page).read_text()
    names = {}
    for block in example(text, "import flashsift")[:blocks]:
        exec(compile(block, page, "exec"), names)  # noqa: S102
    for file in files:
        assert (tmp_path / file).stat().st_size > 1000, file


def write_objects(path):
    """Writes requests for objects of different sizes: time, object, bytes, next access."""
    random = numpy.random.default_rng(20261127)
    record = numpy.dtype([("at", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    rows = numpy.zeros(20_000, record)
    rows["id"] = random.zipf(1.2, len(rows)) % 3000
    rows["size"] = 1 + (rows["id"] * 7919) % 50_000
    rows["at"], rows["next"] = numpy.arange(len(rows)) // 100, -1
    with pyarrow.CompressedOutputStream(str(path), "zstd") as out:
        out.write(rows.tobytes())


def test_a_trace_of_objects_gives_a_figure_in_six_lines():
    text = (REPOSITORY / "docs/tutorial-researchers.md").read_text()
    block = next(block for block in example(text, "import flashsift") if "cdn." in block)
    assert len([line for line in block.splitlines() if line.strip()]) == 6


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_program_knows_the_options_without_the_package(command):
    """The program shows this text where Python has no flashsift: it once named no option."""
    module = pytest.importorskip(f"flashsift.{command}.__main__")
    shown = (REPOSITORY / "crates/cli/src/python" / f"{command}.txt").read_text()
    # Versions of Python print the same options in other forms.
    options = [set(re.findall(r"--[a-z][a-z-]*", text))
               for text in (shown, module.parser().format_help())]
    assert options[0] == options[1]
    assert max(map(len, shown.splitlines())) < 120


def test_the_notebook_runs():
    path = REPOSITORY / "docs" / "browser.ipynb"
    notebook = nbformat.read(path, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=1200, startup_timeout=600, iopub_timeout=600, kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    shown = "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "image/svg+xml" in shown and "hit_ratio" in shown
    # Second chance is Clock: with the same pages.
    row = r"<td>&quot;{}&quot;</td><td>(\d+)</td><td>(\d+)</td>"
    found = [re.search(row.format(name), shown) for name in ("clock", "SecondChance")]
    assert all(found) and found[0].groups() == found[1].groups(), shown[-2000:]
