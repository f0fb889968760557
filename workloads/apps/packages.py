"""Packages of Python and Debian that are made here, and an apt that installs into a folder."""

import base64
import hashlib
import io
import shutil
import zipfile


def wheel(name, files, requires=(), packed=zipfile.ZIP_DEFLATED):
    """A package of Python with these files (path: content), without times."""
    about = f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {other}\n" for other in requires)
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}\n"
        for path, body in files.items())
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packed) as archive:
        for path, body in files.items():
            archive.writestr(zipfile.ZipInfo(path), body)
    return out.getvalue()


def offer(name, file, body):
    """The pages of an index for pip, by path: that of a package, and its file."""
    link = f'<a href="/files/{file}#sha256={hashlib.sha256(body).hexdigest()}">{file}</a>'
    return {f"/files/{file}": body, f"/simple/{name}/": f"<!doctype html>{link}".encode()}


def control(name, version, description):
    """The facts of a Debian package."""
    return (f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@example.org>\n"
            f"Description: {description}\n")


def deb(call, folder, facts, files):
    """A Debian package with these files (path: content), by `call("dpkg-deb", …)` in a folder."""
    tree, package = folder / "package", folder / "package.deb"
    for path, content in {"DEBIAN/control": facts.encode(), **files}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    call("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, package)
    body = package.read_bytes()
    shutil.rmtree(tree)
    package.unlink()
    return body


def entry(facts, file, body):
    """The lines of a Debian package in the index of a repository."""
    return f"{facts}Filename: ./{file}\nSize: {len(body)}\nSHA256: {hashlib.sha256(body).hexdigest()}\n"


def set_up_apt(root, source, settings):
    """Make the folders of an apt that installs into `root`, and its settings in a file.

    $APT_CONFIG has to name that file.
    """
    for folder in ("etc", "etc/preferences.d", "var/lib/dpkg", "var/lib/apt/lists/partial",
                   "var/cache/apt/archives/partial", "var/log/apt", "usr"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "etc/sources.list").write_text(f"deb [trusted=yes] {source} ./\n")
    settings.write_text("".join(f'{name} "{value}";\n' for name, value in {
        "Dir::State": root / "var/lib/apt", "Dir::State::status": root / "var/lib/dpkg/status",
        "Dir::Cache": root / "var/cache/apt", "Dir::Log": root / "var/log/apt",
        "Dir::Etc::SourceList": root / "etc/sources.list", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null", "Dir::Etc::PreferencesParts": root / "etc/preferences.d",
        "Dir::Etc::Main": "/dev/null", "Dir::Etc::Parts": "/dev/null", "Dir::Etc::Trusted": "/dev/null",
        "Dir::Etc::TrustedParts": root / "etc/preferences.d",
        "APT::Architecture": "amd64", "APT::Sandbox::User": "root", "Acquire::Languages": "none",
        "DPkg::Options::": f"--root={root}", "DPkg::Use-Pty": "false", "Acquire::http::Proxy": "DIRECT",
    }.items()))
