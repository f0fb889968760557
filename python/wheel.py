#!/usr/bin/env python3
"""Builds wheels of the module with a program, and tests one in a fresh environment.

    python/wheel.py --target x86_64-unknown-linux-gnu --program PROGRAM --out target/wheels
    python/wheel.py --built target/debug --out target/wheels-dev              as `make test` does
    python/wheel.py --test target/wheels                                      as `make wheel-test`

With qemu-user and the system that tests boot in a guest of ARM64, --test tries that wheel as well.
"""

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

import tomllib

import packing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python"
# Packages that only the tests need, or one kind of user.
TESTED_WITH = ["fsspec", "matplotlib", "mypy", "pytest"]


def run(*words, cwd=ROOT):
    """Runs a command, which must succeed."""
    subprocess.run([str(word) for word in words], check=True, cwd=cwd)


def build(target, program, out):
    """Builds a wheel of the module, and puts the program into it."""
    out.mkdir(parents=True, exist_ok=True)
    # A module that was built for tests must not be packed beside the new one.
    stale = PYTHON / "flashsift" / "_native.abi3.so"
    with tempfile.TemporaryDirectory() as aside:
        hidden = pathlib.Path(aside) / stale.name
        try:
            if stale.exists():
                shutil.move(stale, hidden)
            run("maturin", "build", "--profile", "dist", "--out", aside, "--target", target,
                "--zig", "--compatibility", "manylinux2014", cwd=PYTHON)
        finally:
            if hidden.exists():
                shutil.move(hidden, stale)
        [made] = pathlib.Path(aside).glob("flashsift-*.whl")
        packing.add_program(made, program)
        shutil.copy(made, out)


def pack(built, out):
    """Packs a wheel for this machine of what tests have built, without compiling anything again."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    name = f"{project['name']}-{project['version']}"
    tag = f"cp310-abi3-linux_{platform.machine()}"
    info = f"{name}.dist-info"
    metadata = [
        "Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
        f"Requires-Python: {project['requires-python']}",
        *[f"Requires-Dist: {need}" for need in project["dependencies"]],
    ]
    for extra, needs in project["optional-dependencies"].items():
        metadata.append(f"Provides-Extra: {extra}")
        metadata += [f"Requires-Dist: {need}; extra == '{extra}'" for need in needs]
    wheel = ["Wheel-Version: 1.0", "Generator: wheel.py", "Root-Is-Purelib: false", f"Tag: {tag}"]
    package = PYTHON / "flashsift"
    content = {
        str(path.relative_to(PYTHON)): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed") or path.name == "py.typed"
    }
    content["flashsift/_native.abi3.so"] = (built / "lib_native.so").read_bytes()
    content[f"{name}.data/scripts/flashsift"] = (built / "flashsift").read_bytes()
    content[f"{info}/METADATA"] = "\n".join([*metadata, ""]).encode()
    content[f"{info}/WHEEL"] = "\n".join([*wheel, ""]).encode()
    out.mkdir(parents=True, exist_ok=True)
    # For the tests alone: not worth the time of compression.
    packing.write(out / f"{name}-{tag}.whl", content, f"{info}/RECORD", zipfile.ZIP_STORED)


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
        # The tests come without the sources of the package beside them.
        tests = pathlib.Path(directory) / "python" / "tests"
        shutil.copytree(PYTHON / "tests", tests)
        shutil.copy2(PYTHON / "pyproject.toml", tests.parent)
        (pathlib.Path(directory) / "testdata").symlink_to(ROOT / "testdata")
        chosen = [tests / name for name in ["test_package.py", "test_policy.py"]]
        subprocess.run(
            [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
            check=True, env=clean, cwd=directory,
        )


# Its Python, which `make setup` unpacks for guests.
GUEST = ROOT / "target" / "guest" / "arm64" / "root"
# They start Python itself, or draw, or look at the sources.
NOT_EMULATED = "not ctrl_c and not lock and not figures and not types"


def emulate(wheels):
    """Runs the tests of the wheel for ARM64 in an emulator, as far as that can be."""
    found = sorted(wheels.glob("flashsift-*aarch64.whl"))
    qemu = shutil.which("qemu-aarch64-static")
    interpreter = GUEST / "usr" / "bin" / "python3"
    for what, there in [("the wheel", found), ("qemu-user-static", qemu),
                        (str(interpreter), interpreter.exists())]:
        if not there:
            print(f"SKIPPED the wheel for ARM64: {what} is missing")
            return
    version = interpreter.resolve().name.removeprefix("python")
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory) / "site"
        platforms = ["--platform=manylinux2014_aarch64", "--platform=manylinux_2_28_aarch64"]
        abis = [f"--abi=cp{version.replace('.', '')}", "--abi=abi3", "--abi=none"]
        run(sys.executable, "-m", "pip", "install", "-q", *platforms, f"--python-version={version}",
            "--implementation=cp", *abis, "--only-binary=:all:", "--target", site, found[-1],
            "pytest", "fsspec", "matplotlib")
        # The kernel does not start programs of other machines.
        program = pathlib.Path(directory) / "flashsift"
        program.write_text(f'#!/bin/sh\nexec {qemu} -L {GUEST} {site}/bin/flashsift "$@"\n')
        program.chmod(0o755)
        here = {**os.environ, "PYTHONPATH": str(site), "FLASHSIFT": str(program)}
        chosen = [PYTHON / "tests" / name for name in ["test_package.py", "test_policy.py"]]
        subprocess.run(
            [qemu, "-L", GUEST, interpreter, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "-k", NOT_EMULATED, *chosen],
            check=True, env=here, cwd=directory,
        )


def main():
    it = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    it.add_argument("--target", help="build for this triple, linked by zig")
    it.add_argument("--program", type=pathlib.Path, help="the static program for that machine")
    it.add_argument("--built", type=pathlib.Path, metavar="DIR", help="pack what is built there")
    it.add_argument("--out", type=pathlib.Path, metavar="DIR")
    it.add_argument("--test", type=pathlib.Path, metavar="WHEELS")
    args = it.parse_args()
    if args.target:
        build(args.target, args.program.resolve(), args.out.resolve())
    if args.built:
        pack(args.built.resolve(), args.out.resolve())
    if args.test:
        test(args.test.resolve())
        emulate(args.test.resolve())


if __name__ == "__main__":
    main()
