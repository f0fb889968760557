#!/usr/bin/env python3
"""Builds a wheel with the program and the module, and tests one in a fresh environment.

    python/wheel.py --target x86_64-unknown-linux-gnu --out target/wheels     as `make wheel` does
    python/wheel.py --target "" --profile dev --out target/wheels-dev         for tests: no zig
    python/wheel.py --test target/wheels                                      as `make wheel-test`
"""

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python"
# The C library of manylinux2014.
GLIBC = "2.17"
# Packages that only the tests need, or one kind of user.
TESTED_WITH = ["pytest", "pandas", "pyarrow", "duckdb", "mypy", "matplotlib"]


def run(*words, **options):
    """Runs a command, which must succeed."""
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT, **options)


def build(target, profile, out):
    """Builds the program, puts it where maturin finds scripts, and builds the wheel."""
    directory = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folder = "debug" if profile == "dev" else profile
    if target:
        run("cargo", "zigbuild", "--profile", profile, "--locked", "-p", "flashsift",
            "--target", f"{target}.{GLIBC}")
        program = directory / target / folder / "flashsift"
        options = ["--target", target, "--zig", "--compatibility", "manylinux2014"]
    else:
        program = directory / folder / "flashsift"
        options = ["--compatibility", "linux"]
        if profile == "dev":
            # With the features of the tests, so that nothing is compiled twice.
            run("cargo", "build", "--workspace", "--all-features", "--locked")
    scripts = PYTHON / "wheel.data" / "scripts"
    shutil.rmtree(PYTHON / "wheel.data", ignore_errors=True)
    scripts.mkdir(parents=True)
    stale = PYTHON / "flashsift" / "_native.abi3.so"
    hidden = stale.with_suffix(".hidden")
    try:
        shutil.copy2(program, scripts / "flashsift")
        if stale.exists():
            stale.rename(hidden)
        run("maturin", "build", "--profile", profile, "--manifest-path", "crates/py/Cargo.toml",
            "--out", out, *options)
    finally:
        shutil.rmtree(PYTHON / "wheel.data", ignore_errors=True)
        if hidden.exists():
            hidden.rename(stale)


def test(wheels):
    """Installs the wheel of this machine alone, and runs the package's tests from elsewhere."""
    found = sorted(pathlib.Path(wheels).glob(f"flashsift-*{platform.machine()}.whl"))
    if not found:
        sys.exit(f"there is no wheel for {platform.machine()} in {wheels}: make wheel")
    pins = (PYTHON / "requirements.txt").read_text().splitlines()
    pinned = [pin for pin in pins if pin.split("==")[0].split("[")[0] in TESTED_WITH]
    with tempfile.TemporaryDirectory() as directory:
        environment = pathlib.Path(directory) / "venv"
        run(sys.executable, "-m", "venv", environment)
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", f"{found[-1]}[plot]", *pinned)
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "FLASHSIFT", "FLASHSIFT_PYTHON")
        }
        tests = [PYTHON / "tests" / name for name in ["test_package.py", "test_policy.py"]]
        run(python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append",
            *tests, env=clean)


def main():
    it = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    it.add_argument("--target", default="", help="triple, linked by zig; default: this machine")
    it.add_argument("--profile", default="release")
    it.add_argument("--out", type=pathlib.Path)
    it.add_argument("--test", type=pathlib.Path, metavar="WHEELS")
    args = it.parse_args()
    if args.out:
        build(args.target, args.profile, args.out.resolve())
    if args.test:
        test(args.test.resolve())


if __name__ == "__main__":
    main()
