"""Builds the package for pip: maturin builds the module, cargo the program, and a wheel has both.

A hook of PEP 517 each; `build_sdist` packs all sources that the two need. FLASHSIFT_PROGRAM names a
program that is built already.
"""

import gzip
import io
import os
import pathlib
import subprocess
import tarfile

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from packing import add_program

try:
    import tomllib
except ImportError:
    import tomli as tomllib

PYTHON = pathlib.Path(__file__).resolve().parent
ROOT = PYTHON.parent
# Of a sources' archive, beside its own pyproject.toml.
PACKED = [
    "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md",
    "crates", "benches", "python",
]
# Not of the sources, or made again for the archive.
LEFT_OUT = ("python/tests/", "python/pyproject.toml")
BUILT = ("__pycache__", "node_modules")


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """Builds a wheel for this machine."""
    name = maturin.build_wheel(directory, config_settings, metadata_directory)
    add_program(pathlib.Path(directory) / name, program())
    return name


def build_editable(directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that leads to the sources, and has the program."""
    name = maturin.build_editable(directory, config_settings, metadata_directory)
    add_program(pathlib.Path(directory) / name, program())
    return name


def build_sdist(directory, config_settings=None):
    """Packs the sources: the same files give the same bytes."""
    text = (PYTHON / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    name = f"{project['name']}-{project['version']}"
    # The archive has one pyproject.toml, at its top.
    for ours, there in [
        ('"../crates/py/Cargo.toml"', '"crates/py/Cargo.toml"'),
        ('python-source = "."', 'python-source = "python"'),
        ('backend-path = ["."]', 'backend-path = ["python"]'),
        ('readme = "README.md"', 'readme = "python/README.md"'),
    ]:
        if ours not in text:
            raise SystemExit(f"python/pyproject.toml has no {ours}, which an archive of the sources changes")
        text = text.replace(ours, there)
    about = [
        "Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
        f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}",
        *[f"Requires-Dist: {need}" for need in project["dependencies"]], "",
    ]
    content = {"PKG-INFO": "\n".join(about).encode(), "pyproject.toml": text.encode()}
    content |= {path: (ROOT / path).read_bytes() for path in _sources()}
    with (
        open(pathlib.Path(directory) / f"{name}.tar.gz", "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, data in content.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return f"{name}.tar.gz"


def _sources():
    """Returns the paths of all sources; of a checkout only those that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *PACKED],
                            check=False, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        found = listed.stdout.split("\0")[:-1]
    else:
        tops = (ROOT / top for top in PACKED)
        found = [str(path.relative_to(ROOT)) for top in tops for path in [top, *top.rglob("*")] if path.is_file()]
    return sorted(path for path in found
                  if not path.startswith(LEFT_OUT) and not path.endswith(".so")
                  and not set(pathlib.Path(path).parts) & set(BUILT))


def program():
    """Returns the program: the one of FLASHSIFT_PROGRAM, or one that cargo builds now."""
    if given := os.environ.get("FLASHSIFT_PROGRAM"):
        return pathlib.Path(given)
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "flashsift"], check=True, cwd=ROOT)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "flashsift"
