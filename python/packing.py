"""Files of a wheel, and the program that one has."""

import base64
import hashlib
import zipfile


def add_program(wheel, program):
    """Puts a program into a wheel: its scripts go beside the interpreter."""
    with zipfile.ZipFile(wheel) as file:
        content = {name: file.read(name) for name in file.namelist()}
    [record] = [name for name in content if name.endswith(".dist-info/RECORD")]
    del content[record]
    content[record.replace(".dist-info/RECORD", ".data/scripts/flashsift")] = program.read_bytes()
    write(wheel, content, record)


def write(wheel, content, record, compression=zipfile.ZIP_DEFLATED):
    """Writes a wheel with these files, and their hashes under this name."""
    lines = []
    with zipfile.ZipFile(wheel, "w") as file:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = compression
            entry.external_attr = 0o100755 << 16 if "/scripts/" in path else 0o100644 << 16
            file.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        lines.append(f"{record},,")
        file.writestr(record, "\n".join([*lines, ""]))
